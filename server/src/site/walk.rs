//! The long way of a request through its site: gates, route, action, and what the site does
//! to the answer.

use super::action::{Action, FilesRules};
use super::files::cache::Owner;
use super::files::resolve::Found;
use super::files::{self, Resource};
use super::gate::{Gates, Verdict};
use super::headers::{self, HeaderEdits};
use super::listing;
use super::lookup::{self, Looked};
use super::pattern::{Captures, text_of};
use super::plain::{answer_method, discard_content, redirect_to_slash};
use super::sites::Sites;
use super::table::{Choice, Gating, Matched, Route, Site};
use super::template::Template;
use selvedge::proto::field::Fields;
use selvedge::proto::head::Framing;
use selvedge::proto::path::SafePath;
use selvedge::proto::target::Form;
use selvedge::{Request, Response, Status};
use std::net::IpAddr;
use std::time::Duration;

/// Who has come, and what the gates of the site say to that which need not wait, where they
/// were asked.
pub(super) struct Arrival {
    client: IpAddr,
    verdict: Option<Verdict>,
}

impl Arrival {
    /// A client whom the gates of a route are to judge.
    pub(super) fn new(client: IpAddr) -> Self {
        Self { client, verdict: None }
    }

    /// A client whom the gates of the site have judged.
    pub(super) fn judged(client: IpAddr, verdict: Verdict) -> Self {
        Self { client, verdict: Some(verdict) }
    }
}

/// A request on its way.
pub(super) struct Walk<'t> {
    sites: &'t Sites,
    site: &'t Site,
    /// Who remembers the files of this site.
    way: Owner,
    client: IpAddr,
    verdict: Option<Verdict>,
    /// The gates that it has passed.
    passed: Gates,
    /// What a gate that only observes would have said.
    observed: Option<&'static str>,
    /// Whether the path alone has chosen the way so far.
    choice: Choice,
}

/// An answer that has yet to get what its site gives to all.
struct Answered<'t> {
    response: Response,
    /// Whose answer it is, if a route was found.
    route: Option<&'t Route>,
    origin: Origin,
}

/// What an answer was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A file, or the lack of one.
    Files,
    /// What the configuration has written, which no error page takes the place of.
    Written,
    /// The server itself.
    Server,
}

/// Where a route leads.
enum Step<'t> {
    Answered(Answered<'t>),
    /// To this path, by this route.
    Rewritten(SafePath, &'t Route),
}

impl<'t> Walk<'t> {
    pub(super) fn new(sites: &'t Sites, site: &'t Site, way: Owner, arrival: Arrival) -> Self {
        let Arrival { client, verdict } = arrival;
        Self { sites, site, way, client, verdict, passed: Gates::default(), observed: None, choice: Choice::ByPath }
    }

    /// The way to its end.
    pub(super) async fn finish(mut self, request: &mut Request) -> Response {
        let answered = match self.pass(request).await {
            Ok(()) => self.answer(request).await,
            Err(refused) => self.by_server(refused),
        };
        self.complete(request, answered).await
    }

    fn by_server(&self, response: Response) -> Answered<'t> {
        Answered { response, route: None, origin: Origin::Server }
    }

    /// What has to be before a route is looked for: that the gates of the site are open, where
    /// all of its routes stand behind those.
    async fn pass(&mut self, request: &mut Request) -> Result<(), Response> {
        let Some(verdict) = self.verdict.take() else { return Ok(()) };
        let gates = &self.site.rules.gates;
        self.passed = gates.clone();
        self.obey(verdict)?;
        self.pass_users(request, gates).await
    }

    async fn pass_users(&mut self, request: &mut Request, gates: &Gates) -> Result<(), Response> {
        let verdict = gates.admit_user(request, &self.sites.verifier).await;
        if gates.basic.is_some() {
            self.choice = Choice::ByRequest;
        }
        self.obey(verdict)
    }

    fn obey(&mut self, verdict: Verdict) -> Result<(), Response> {
        match verdict {
            Verdict::Pass => Ok(()),
            Verdict::Observed(reason) => {
                self.observed = Some(reason);
                Ok(())
            }
            Verdict::Refused(refused) => Err(refused),
        }
    }

    async fn answer(&mut self, request: &mut Request) -> Answered<'t> {
        if !matches!(request.target_form(), Form::Origin | Form::Absolute) {
            // `OPTIONS *` is about the server, and the other form has a method of its own.
            return self.by_server(answer_method(request).unwrap_or_else(|| Response::error(Status::BAD_REQUEST)));
        }
        let asked = match SafePath::decode(request.path_bytes()) {
            Ok(path) => path,
            Err(reject) => return self.by_server(Response::error_with_text(reject.status(), reject.text())),
        };
        let path = match self.step(request, &asked).await {
            Step::Answered(answered) => return answered,
            Step::Rewritten(path, _) => path,
        };
        match self.step(request, &path).await {
            Step::Answered(answered) => answered,
            // A client may bring it about (`/en/en/x`), so it is no failure of the server.
            Step::Rewritten(_, route) => {
                let response =
                    Response::error(Status::NOT_FOUND).because("a route would rewrite what was rewritten already");
                Answered { response, route: Some(route), origin: Origin::Server }
            }
        }
    }

    /// Finds the route of a path, asks its gates, and does what it says.
    async fn step(&mut self, request: &mut Request, path: &SafePath) -> Step<'t> {
        let text = text_of(path);
        let (matched, choice) = self.site.route_of(&text, (request, self.client));
        if choice == Choice::ByRequest {
            self.choice = choice;
        }
        let route = matched.as_ref().map(|matched| matched.route);
        if let Err(response) = self.pass_route(request, route).await {
            return Step::Answered(Answered { response, route, origin: Origin::Server });
        }
        let Some(Matched { route, captures, files }) = matched else {
            let unmatched = Response::error(Status::NOT_FOUND).because("no route of the site matches");
            return Step::Answered(self.by_server(unmatched));
        };
        let answered = |response, origin| Step::Answered(Answered { response, route: Some(route), origin });
        match &route.action {
            Action::Rewrite(target) => {
                if target.stars() < route.pattern.stars() || !route.pattern.captures_all() {
                    // Many paths lead there, and clients choose how many of them are remembered.
                    self.choice = Choice::ByRequest;
                }
                match rewrite(target, &captures) {
                    Ok(path) => Step::Rewritten(path, route),
                    Err(refused) => answered(refused, Origin::Server),
                }
            }
            Action::Redirect(redirect) => {
                let location = redirect.target.location(&captures, request.query());
                answered(send_to(redirect.status, location), Origin::Server)
            }
            Action::Respond(reply) => answered(reply.response(), Origin::Written),
            Action::Deny(denial) => answered(denial.response(), Origin::Server),
            Action::Files(rules) => {
                let (response, origin) = self.serve_files(request, path, (route, rules, files)).await;
                answered(response, origin)
            }
        }
    }

    /// What stands before a route, or before there being none: gates that were not passed yet,
    /// and content that is in order. Whoever is refused need not send any.
    async fn pass_route(&mut self, request: &mut Request, route: Option<&Route>) -> Result<(), Response> {
        if self.site.gating == Gating::ByRoute {
            let own = route.and_then(|route| route.gates.as_ref());
            if own.is_some() {
                self.choice = Choice::ByRequest;
            }
            let gates = own.unwrap_or(&self.site.rules.gates);
            let ahead = gates.beyond(&self.passed);
            self.passed = gates.clone();
            self.obey(ahead.admit_client(self.client))?;
            self.pass_users(request, &ahead).await?;
        }
        if request.head().framing != Framing::None {
            let most = route.map_or(u64::MAX, |route| route.body_bytes_max);
            discard_content(request, most).await?;
        }
        Ok(())
    }

    /// The answer of a route with files.
    async fn serve_files(
        &self,
        request: &Request,
        path: &SafePath,
        (route, rules, number): (&Route, &FilesRules, u32),
    ) -> (Response, Origin) {
        if let Some(response) = answer_method(request) {
            return (response, Origin::Server);
        }
        let files = self.sites.files(number);
        let response = match lookup::look_for(files, rules, path, request).await {
            Ok(Looked::File(resource, checked)) => {
                if let Some(checked) = checked {
                    self.remember(request, route, (&resource, checked));
                }
                files.respond(request, &resource).await
            }
            Ok(Looked::Fallback(resource, fallback)) => {
                let mut response = files.respond(request, &resource).await;
                vary_by_navigation(&mut response);
                // How long it may be kept is said of its own path, not of the one it stands for.
                let cache_control = route.cache.value_for(&text_of(fallback));
                headers::add_cache_control(response.edit_fields(), cache_control);
                return (response, Origin::Server);
            }
            Ok(Looked::DirectoryWithoutSlash) => redirect_to_slash(path, request, self.sites.slash),
            Ok(Looked::Directory(directory, root)) => {
                listing::respond(&self.sites.lists, request, path, (directory, root)).await
            }
            Err(failure) => {
                let mut response = Response::from(failure);
                if rules.fallback.is_some() {
                    vary_by_navigation(&mut response);
                }
                response
            }
        };
        (response, Origin::Files)
    }

    /// Has the short way lead to a file from now on, if the path alone has led to it.
    fn remember(&self, request: &Request, route: &Route, file: (&Resource, Duration)) {
        let raw = request.path_bytes();
        // Only the plain way to write a path, so that nobody can fill the cache with others.
        let asked = SafePath::decode(raw).ok().filter(|asked| asked.encode().as_bytes() == raw);
        if let (Choice::ByPath, Some(asked)) = (self.choice, asked) {
            let cache_control = route.cache.value_for(&text_of(&asked));
            files::remember_dressed(&self.sites.cache, (self.way, raw), file, |fields| {
                dress(fields, cache_control, &route.headers);
            });
        }
    }

    /// What a site does to all of its answers: pages for errors, fields, a word for the log.
    async fn complete(&self, request: &Request, answered: Answered<'t>) -> Response {
        let Answered { mut response, route, origin } = answered;
        let rules = &self.site.rules;
        let (headers, cache) = route.map_or((&rules.headers, &rules.cache), |route| (&route.headers, &route.cache));
        if origin != Origin::Written && response.status.is_error() {
            response = self.with_page(request, route, response).await;
        }
        let cache_control = match origin {
            Origin::Files if headers::is_of_file(&response) && !cache.is_empty() => {
                SafePath::decode(request.path_bytes()).ok().and_then(|asked| cache.value_for(&text_of(&asked)))
            }
            _ => None,
        };
        if cache_control.is_some() || !headers.is_empty() {
            dress(response.edit_fields(), cache_control, headers);
        }
        match self.observed {
            Some(reason) if response.reason().is_none() => response.because(reason),
            _ => response,
        }
    }

    /// An error with the page that the site has for it.
    async fn with_page(&self, request: &Request, route: Option<&Route>, error: Response) -> Response {
        let Some((number, path)) = self.site.page_for(route, error.status) else { return error };
        let found = lookup::find(self.sites.files(number), path, request.moment().since_start).await;
        let Ok((Found::File(resource), _)) = found else {
            return error.because("the page of the site for this error cannot be read");
        };
        let mut page = files::respond_as_page(request, &resource, error.status);
        for (name, value) in error.fields().iter().filter(|(name, _)| *name != "content-type") {
            page.append(name, value).expect("it was a field before");
        }
        match error.reason() {
            Some(reason) => page.because(reason),
            None => page,
        }
    }
}

/// The fields of an answer as the site wants them.
fn dress(fields: &mut Fields, cache_control: Option<&str>, headers: &HeaderEdits) {
    headers::add_cache_control(fields, cache_control);
    headers.apply(fields);
}

fn rewrite(target: &Template, captures: &Captures<'_>) -> Result<SafePath, Response> {
    SafePath::decode(target.path_with(captures).as_bytes())
        .map_err(|_| Response::error(Status::NOT_FOUND).because("a rewrite leads to no path"))
}

fn send_to(status: Status, location: String) -> Response {
    let mut response = Response::error(status);
    match response.append("location", location) {
        Ok(()) => response,
        Err(_) => Response::error(Status::BAD_REQUEST).because("a redirect leads to no location"),
    }
}

/// What the answer is depends on whether a browser is about to show it, so caches are told.
fn vary_by_navigation(response: &mut Response) {
    response.append("vary", "accept, sec-fetch-mode").expect("field names");
}
