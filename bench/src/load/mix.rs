//! What the clients ask for, prepared before the clock runs.

use std::rc::Rc;

/// What becomes of a connection after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// It asks again.
    KeepAlive,
    /// It ends, and a new one is made for the next request.
    Close,
}

/// The requests, and the order in which they are made.
#[derive(Clone)]
pub(crate) struct Mix {
    requests: Vec<Rc<[u8]>>,
    order: Vec<u32>,
    /// So many requests are sent at once.
    pub(crate) pipelined: usize,
    pub(crate) afterwards: Afterwards,
}

impl Mix {
    /// One path, over and over.
    pub(crate) fn one(path: &str, afterwards: Afterwards) -> Self {
        Self { requests: vec![request(path, afterwards).into()], order: vec![0], pipelined: 1, afterwards }
    }

    /// One path, so many times at once.
    pub(crate) fn pipelined(path: &str, count: usize) -> Self {
        let batch = request(path, Afterwards::KeepAlive).repeat(count);
        Self { requests: vec![batch.into()], order: vec![0], pipelined: count, afterwards: Afterwards::KeepAlive }
    }

    /// Many paths, in this order, again and again.
    pub(crate) fn many(paths: &[String], order: Vec<u32>) -> Self {
        let requests = paths.iter().map(|path| request(path, Afterwards::KeepAlive).into()).collect();
        Self { requests, order, pipelined: 1, afterwards: Afterwards::KeepAlive }
    }

    /// Requests as they are, in this order.
    pub(crate) fn raw(requests: Vec<Vec<u8>>) -> Self {
        let order = (0..u32::try_from(requests.len()).expect("a short list")).collect();
        let requests = requests.into_iter().map(Rc::from).collect();
        Self { requests, order, pipelined: 1, afterwards: Afterwards::KeepAlive }
    }

    /// The bytes of the request (or batch) with this number in the order.
    pub(crate) fn request(&self, number: usize) -> &Rc<[u8]> {
        &self.requests[self.order[number % self.order.len()] as usize]
    }
}

/// The request every client sends: what the article's clients sent, and nothing more.
pub(crate) fn request(path: &str, afterwards: Afterwards) -> Vec<u8> {
    let close = if afterwards == Afterwards::Close { "Connection: close\r\n" } else { "" };
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: selvedge-bench\r\nAccept: */*\r\n{close}\r\n")
        .into_bytes()
}
