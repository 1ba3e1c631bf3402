//! What routes do.

use super::{Compiler, Route};
use crate::config::model::{self, Files, Switch};
use crate::config::value;
use crate::site::{
    Action, Attempt, Denial, FilesRules, IndexNames, Listing, Redirect, Reply, Sidecars, Suffix, Template,
};

impl Compiler<'_> {
    pub(super) fn action(&mut self, at: Route, action: &model::Action) -> Option<Action> {
        Some(match action {
            model::Action::Files(files) => Action::Files(self.files(at, files)?),
            model::Action::Redirect { target, status } => {
                let target = self.judged(at, Template::parse(&target.to_string()))?;
                Action::Redirect(self.judged(at, Redirect::new(*status, target))?)
            }
            model::Action::Rewrite { target } => {
                Action::Rewrite(self.judged(at, Template::parse_path(&target.to_string()))?)
            }
            model::Action::Respond { status, body, content_type } => {
                let reply = Reply::new(*status, content_type, body.clone().into_bytes());
                Action::Respond(self.judged(at, reply)?)
            }
            model::Action::Deny { status } => Action::Deny(self.judged(at, Denial::new(*status))?),
        })
    }

    fn files(&mut self, at: Route, files: &Files) -> Option<FilesRules> {
        let root = self.root(&files.root);
        let index = self.judged(at, IndexNames::new(files.index.iter().map(String::as_str)));
        let fallback = match &files.fallback {
            Some(path) => Some(self.path(at, path)?),
            None => None,
        };
        let mut attempts = Vec::new();
        for attempt in &files.attempts {
            attempts.extend(self.attempts(at, attempt)?);
        }
        Some(FilesRules {
            root: root?,
            index: index?,
            attempts,
            fallback,
            listing: if files.listing == Switch::On { Listing::On } else { Listing::Off },
            sidecars: if files.sidecars == Switch::On { Sidecars::On } else { Sidecars::Off },
        })
    }

    /// What a `try` means: the path of the request may lead to a file or a directory, any
    /// other path to a file.
    fn attempts(&mut self, at: Route, attempt: &value::Template) -> Option<Vec<Attempt>> {
        if *attempt == value::Template::whole() {
            return Some(vec![Attempt::File, Attempt::Directory]);
        }
        if let [value::Piece::Capture(_), value::Piece::Text(end)] = &*attempt.pieces
            && let Ok(suffix) = Suffix::new(end)
        {
            return Some(vec![Attempt::Suffix(suffix)]);
        }
        // The path of a request has a slash of its own, and two are one.
        let text = attempt.to_string().replace('*', "/*");
        Some(vec![Attempt::Path(self.judged(at, Template::parse_path(&text))?)])
    }
}
