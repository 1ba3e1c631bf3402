//! What a worker keeps of the groups that it forwards to: its connections, and copies of the addresses of servers.

use super::rules::ServerRules;
use super::upstream::{Chooser, Upstream};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use selvedge::client::{Client, ClientLimits, Destination, OutgoingHead};
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Weak as SharedWeak};

thread_local! {
    /// The state of this worker, so that its connections outlive a reload.
    static CURRENT: RefCell<Weak<ProxyWorker>> = const { RefCell::new(Weak::new()) };
}

/// The proxy of one worker: the connections to servers, and what it knows of groups.
pub(in crate::site) struct ProxyWorker {
    pub(super) client: Client,
    /// By [`Upstream::id`].
    groups: RefCell<HashMap<u64, Rc<WorkerGroup>, FixedState>>,
    /// A head whose buffers are used again.
    spare_head: Cell<OutgoingHead>,
}

/// A group of servers, as one worker sees it.
pub(super) struct WorkerGroup {
    upstream: SharedWeak<Upstream>,
    pub(super) name: Rc<str>,
    pub(super) chooser: RefCell<Chooser>,
    servers: Box<[RefCell<CopiedAddresses>]>,
}

/// A copy of the addresses of a server.
#[derive(Default)]
struct CopiedAddresses {
    version: u64,
    targets: Rc<[Target]>,
}

/// An address of a server.
pub(super) struct Target {
    pub(super) destination: Destination,
    /// The address in words, for the log.
    pub(super) text: Rc<str>,
}

impl ProxyWorker {
    /// Returns the state of this worker. Call it within the runtime of the worker. The limits are those of the first
    /// configuration.
    pub(in crate::site) fn current(limits: &ClientLimits) -> Rc<Self> {
        CURRENT.with(|current| {
            if let Some(worker) = current.borrow().upgrade() {
                return worker;
            }
            let worker = Rc::new(Self {
                client: Client::new(limits.clone()),
                groups: RefCell::default(),
                spare_head: Cell::default(),
            });
            *current.borrow_mut() = Rc::downgrade(&worker);
            worker
        })
    }

    /// Returns what this worker knows of a group.
    pub(super) fn group(&self, upstream: &Arc<Upstream>) -> Rc<WorkerGroup> {
        if let Some(group) = self.groups.borrow().get(&upstream.id()) {
            return group.clone();
        }
        let group = Rc::new(WorkerGroup {
            upstream: Arc::downgrade(upstream),
            name: (*upstream.rules().name).into(),
            // The hasher has random keys.
            chooser: RefCell::new(Chooser::new(RandomState::new().hash_one(upstream.id()))),
            servers: upstream.rules().servers.iter().map(|_| RefCell::default()).collect(),
        });
        let mut groups = self.groups.borrow_mut();
        // Groups of earlier configurations whose last request has ended.
        groups.retain(|_, group| group.upstream.strong_count() > 0);
        groups.insert(upstream.id(), group.clone());
        group
    }

    /// Returns an empty head. Give it back by [`Self::reuse_head`].
    pub(super) fn empty_head(&self) -> OutgoingHead {
        let mut head = self.spare_head.take();
        head.clear();
        head
    }

    pub(super) fn reuse_head(&self, head: OutgoingHead) {
        self.spare_head.set(head);
    }
}

impl WorkerGroup {
    /// Returns the addresses of a server; none if its name is not resolved.
    pub(super) fn targets(&self, index: usize, server: &ServerRules) -> Rc<[Target]> {
        let mut copied = self.servers[index].borrow_mut();
        if copied.version != server.addresses.version() {
            let (version, addresses) = server.addresses.load();
            let target = |address: &selvedge::client::Address| Target {
                text: address.to_string().into(),
                destination: Destination {
                    address: address.clone(),
                    tls: server.tls.clone(),
                    protocol: server.protocol,
                    first_bytes: None,
                },
            };
            *copied = CopiedAddresses { version, targets: addresses.iter().map(target).collect() };
        }
        copied.targets.clone()
    }
}
