//! Records what the steps of a request decide, for explanations.
//!
//! The service of a worker has no recorder: its steps then pay one comparison, and allocate nothing. With a recorder, the
//! steps count nothing, use up no token of a rate limit, and contact no server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Most steps that are recorded of one request. Further ones are counted.
const STEPS_MAX: usize = 4096;
/// Steps beyond which a route that does not match is only counted, so that the steps behind the routes have room.
const ROUTES_MAX: usize = 1024;

/// Records the steps of one request. Clones share the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepRecorder(Rc<Record>);

#[derive(Debug, Default)]
struct Record {
    steps: RefCell<Vec<Step>>,
    /// Steps beyond the limit.
    omitted: Cell<usize>,
    /// The number of the site.
    site: Cell<Option<u32>>,
    /// The number of the route that the steps are about, among those of its site.
    route: Cell<Option<usize>>,
    /// What would make the response, if it is not this server.
    producer: Cell<Option<Producer>>,
}

/// What decides the response to a request beyond this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Producer {
    /// A server that the request is forwarded to.
    Upstream,
    /// A script or program.
    Script,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) stage: Stage,
    pub(crate) verdict: StepVerdict,
    pub(crate) text: String,
    pub(crate) origin: StepOrigin,
    /// The number of the route that it is about, among those of its site.
    pub(crate) route: Option<usize>,
}

/// What a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Client,
    Site,
    Route,
    Access,
    Action,
    File,
    Upstream,
    Script,
    Field,
    Content,
    Response,
    Log,
}

impl Stage {
    /// Returns the name in texts and in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Site => "site",
            Self::Route => "route",
            Self::Access => "access",
            Self::Action => "action",
            Self::File => "file",
            Self::Upstream => "upstream",
            Self::Script => "script",
            Self::Field => "field",
            Self::Content => "content",
            Self::Response => "response",
            Self::Log => "log",
        }
    }
}

/// What a step decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepVerdict {
    /// It matches, is allowed, or is done.
    Yes,
    /// It does not match, or does not exist.
    No,
    /// The request is refused.
    Denied,
    /// The request would be refused, if the rule were enforced.
    DryRun,
    /// Nothing is decided.
    Note,
}

impl StepVerdict {
    /// Returns the name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Denied => "denied",
            Self::DryRun => "dry-run",
            Self::Note => "note",
        }
    }

    /// Returns the mark in texts.
    pub(crate) const fn mark(self) -> char {
        match self {
            Self::Yes => '+',
            Self::No => '-',
            Self::Denied => '!',
            Self::DryRun => '~',
            Self::Note => ' ',
        }
    }
}

/// Which setting a step follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOrigin {
    /// None, such as a rule of HTTP.
    None,
    /// The site.
    Site,
    /// The route.
    Route,
    /// A setting of the route, else of its site.
    Setting(&'static str),
    /// A setting of this number in the block of a setting of the route, else of its site.
    Inner(&'static str, usize),
    /// A condition of the route, by its number.
    Condition(usize),
    /// A change of a response field: those of the site precede those of the route.
    FieldChange(usize),
    /// A setting of the top level.
    Top(&'static str),
}

impl StepRecorder {
    /// Records a step.
    pub(super) fn step(&self, stage: Stage, verdict: StepVerdict, origin: StepOrigin, text: impl Into<String>) {
        self.step_of((stage, self.0.route.get()), verdict, origin, text);
    }

    /// Records a step about a route.
    pub(super) fn step_of(
        &self,
        (stage, route): (Stage, Option<usize>),
        verdict: StepVerdict,
        origin: StepOrigin,
        text: impl Into<String>,
    ) {
        let mut steps = self.0.steps.borrow_mut();
        let most = if (stage, verdict) == (Stage::Route, StepVerdict::No) { ROUTES_MAX } else { STEPS_MAX };
        match steps.len() < most {
            true => steps.push(Step { stage, verdict, text: text.into(), origin, route }),
            false => self.0.omitted.set(self.0.omitted.get() + 1),
        }
    }

    /// Whether a step has refused the request.
    pub(super) fn has_denial(&self) -> bool {
        self.0.steps.borrow().iter().any(|step| step.verdict == StepVerdict::Denied)
    }

    /// Makes a site the one that the steps are about.
    pub(super) fn enter_site(&self, number: u32) {
        self.0.site.set(Some(number));
    }

    /// Makes a route the one that the next steps are about; `None` for the site.
    pub(super) fn enter_route(&self, number: Option<usize>) {
        self.0.route.set(number);
    }

    /// Notes that a server or script would make the response.
    pub(super) fn set_producer(&self, producer: Producer) {
        self.0.producer.set(Some(producer));
    }

    /// Returns what would make the response, if it is not this server.
    pub(crate) fn producer(&self) -> Option<Producer> {
        self.0.producer.get()
    }

    /// Returns the number of the site.
    pub(crate) fn site(&self) -> Option<usize> {
        self.0.site.get().map(|number| number as usize)
    }

    /// Returns the number of the last route, among those of the site.
    pub(crate) fn route(&self) -> Option<usize> {
        self.0.route.get()
    }

    /// Takes the steps, and returns the number of further ones.
    pub(crate) fn take(&self) -> (Vec<Step>, usize) {
        (self.0.steps.take(), self.0.omitted.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_bounded() {
        let recorder = StepRecorder::default();
        for number in 0..ROUTES_MAX + 3 {
            recorder.step(Stage::Route, StepVerdict::No, StepOrigin::Route, number.to_string());
        }
        recorder.step(Stage::Route, StepVerdict::Yes, StepOrigin::Route, "the route that matches");
        let (steps, omitted) = recorder.take();
        assert_eq!((steps.len(), omitted), (ROUTES_MAX + 1, 3));
        (0..STEPS_MAX + 5).for_each(|_| recorder.step(Stage::File, StepVerdict::No, StepOrigin::None, ""));
        let (steps, omitted) = recorder.take();
        assert_eq!((steps.len(), omitted), (STEPS_MAX, 5));
        assert_eq!(recorder.take(), (Vec::new(), 0));
    }
}
