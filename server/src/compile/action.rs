//! Compiles the actions of routes.

use super::access::denial_counter;
#[cfg(feature = "program")]
use super::gateway::gateway;
#[cfg(feature = "program")]
use super::proxy::proxy;
use super::{Compiler, RouteIndex};
use crate::config::model::{self, Enforcement, Files, Switch};
use crate::site::{
    Action, CleanUrls, DenyResponse, FilesRules, FixedResponse, IndexNames, Listing, PageAddresses, PathPrefix,
    Precompressed, Redirect, Suffix, TrailingSlash, TryFile,
};
use crate::syntax::TryPath;

impl Compiler<'_> {
    pub(super) fn action(&mut self, at: RouteIndex, action: &model::Action) -> Option<Action> {
        Some(match action {
            model::Action::Files(files) => Action::Files(self.files(at, files)?),
            model::Action::Redirect { target, status } => {
                Action::Redirect(self.checked(at, Redirect::new(*status, target.clone()))?)
            }
            model::Action::Rewrite { target } => Action::Rewrite(target.clone()),
            model::Action::Respond { status, body, content_type } => {
                let reply = FixedResponse::new(*status, content_type, body.clone());
                Action::Respond(self.checked(at, reply)?)
            }
            model::Action::Deny { status, enforcement } => {
                let deny = self.checked(at, DenyResponse::new(*status))?;
                match enforcement {
                    Enforcement::Enforce => Action::Deny(deny),
                    Enforcement::DryRun => Action::DryRunDeny(denial_counter(self, Some(at.site), "deny")),
                }
            }
            #[cfg(feature = "program")]
            model::Action::Metrics => Action::Metrics(self.carried.metrics.clone()),
            #[cfg(not(feature = "program"))]
            model::Action::Metrics => {
                self.checked(at, Err::<(), _>("embedded sites have no metrics; `selvedge run` does"))?;
                return None;
            }
            #[cfg(feature = "program")]
            model::Action::StatusPage { .. } => Action::StatusPage(self.carried.status_page()),
            #[cfg(not(feature = "program"))]
            model::Action::StatusPage { .. } => {
                self.checked(at, Err::<(), _>("embedded sites have no live page; `selvedge run` does"))?;
                return None;
            }
            #[cfg(feature = "program")]
            model::Action::Proxy(rules) => proxy(self, at, rules)?,
            #[cfg(feature = "program")]
            model::Action::Gateway(rules) => gateway(self, at, rules)?,
            #[cfg(not(feature = "program"))]
            model::Action::Proxy(_) | model::Action::Gateway(_) => {
                self.checked(at, Err::<(), _>("embedded sites do not forward requests; `selvedge run` does"))?;
                return None;
            }
        })
    }

    pub(super) fn files(&mut self, at: RouteIndex, files: &Files) -> Option<FilesRules> {
        let root = self.root(&files.root, &files.link_targets);
        let index = self.checked(at, IndexNames::new(files.index.iter().map(String::as_str)));
        let fallback = match &files.fallback {
            Some(path) => Some(self.path(at, path)?),
            None => None,
        };
        let mut try_files = Vec::new();
        for path in &files.try_files {
            try_files.extend(self.try_file(at, path)?);
        }
        Some(FilesRules {
            root: root?,
            path_prefix: if files.strip_prefix == Switch::On { PathPrefix::Stripped } else { PathPrefix::Kept },
            index: index?,
            try_files,
            fallback,
            listing: if files.listing == Switch::On { Listing::On } else { Listing::Off },
            precompressed: if files.precompressed == Switch::On { Precompressed::On } else { Precompressed::Off },
            addresses: PageAddresses {
                clean_urls: if files.clean_urls == Switch::On { CleanUrls::On } else { CleanUrls::Off },
                trailing_slash: match files.trailing_slash {
                    model::TrailingSlash::Auto => TrailingSlash::Auto,
                    model::TrailingSlash::Add => TrailingSlash::Add,
                    model::TrailingSlash::Remove => TrailingSlash::Remove,
                },
            },
        })
    }

    /// Compiles `try-files`: the path of the request may lead to a file or directory, another path to a file only.
    fn try_file(&mut self, at: RouteIndex, path: &TryPath) -> Option<Vec<TryFile>> {
        Some(match path {
            TryPath::Request => vec![TryFile::File, TryFile::Directory],
            TryPath::Suffix(suffix) => vec![TryFile::Suffix(self.checked(at, Suffix::new(suffix))?)],
            TryPath::Path(template) => vec![TryFile::Path(template.clone())],
        })
    }
}
