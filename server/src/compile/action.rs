//! Compiles the actions of routes.

use super::{Compiler, RouteIndex};
use crate::config::model::{self, Files, Switch};
use crate::config::value;
use crate::site::{
    Action, DenyResponse, FilesRules, IndexNames, Listing, Precompressed, Redirect, StaticResponse, Suffix, Template,
    TryFile,
};

impl Compiler<'_> {
    pub(super) fn action(&mut self, at: RouteIndex, action: &model::Action) -> Option<Action> {
        Some(match action {
            model::Action::Files(files) => Action::Files(self.files(at, files)?),
            model::Action::Redirect { target, status } => {
                let target = self.checked(at, Template::parse(&target.to_string()))?;
                Action::Redirect(self.checked(at, Redirect::new(*status, target))?)
            }
            model::Action::Rewrite { target } => {
                Action::Rewrite(self.checked(at, Template::parse_path(&target.to_string()))?)
            }
            model::Action::Respond { status, body, content_type } => {
                let reply = StaticResponse::new(*status, content_type, body.clone().into_bytes());
                Action::Respond(self.checked(at, reply)?)
            }
            model::Action::Deny { status } => Action::Deny(self.checked(at, DenyResponse::new(*status))?),
        })
    }

    fn files(&mut self, at: RouteIndex, files: &Files) -> Option<FilesRules> {
        let root = self.root(&files.root);
        let index = self.checked(at, IndexNames::new(files.index.iter().map(String::as_str)));
        let fallback = match &files.fallback {
            Some(path) => Some(self.path(at, path)?),
            None => None,
        };
        let mut try_files = Vec::new();
        for template in &files.try_files {
            try_files.extend(self.try_file(at, template)?);
        }
        Some(FilesRules {
            root: root?,
            index: index?,
            try_files,
            fallback,
            listing: if files.listing == Switch::On { Listing::On } else { Listing::Off },
            precompressed: if files.precompressed == Switch::On { Precompressed::On } else { Precompressed::Off },
        })
    }

    /// Compiles `try-files`: the path of the request may lead to a file or directory, another path to a file only.
    fn try_file(&mut self, at: RouteIndex, template: &value::Template) -> Option<Vec<TryFile>> {
        if *template == value::Template::request_path() {
            return Some(vec![TryFile::File, TryFile::Directory]);
        }
        if let [value::TemplatePart::Capture(_), value::TemplatePart::Text(end)] = &*template.parts
            && let Ok(suffix) = Suffix::new(end)
        {
            return Some(vec![TryFile::Suffix(suffix)]);
        }
        // The path of the request has its own slash.
        let text = template.to_string().replace('*', "/*");
        Some(vec![TryFile::Path(self.checked(at, Template::parse_path(&text))?)])
    }
}
