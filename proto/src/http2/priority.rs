//! Priorities of streams (RFC 9218).

/// How urgent a stream is, and whether parts of its content are useful (RFC 9218 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0, the most urgent, to 7. Default 3.
    pub urgency: u8,
    /// Default [`Delivery::Whole`].
    pub delivery: Delivery,
}

/// Whether a client can use a response in parts (RFC 9218 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The response is useful when it is complete, so it is sent without interruption within its turn.
    Whole,
    /// Each part is useful, so responses are interleaved.
    Incremental,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, delivery: Delivery::Whole }
    }
}

impl Priority {
    /// Parses the value of a Priority field or of PRIORITY_UPDATE (RFC 9218 §4). Members that are unknown or invalid
    /// are ignored; so is everything after a syntax error.
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|&b| b == b',') {
            let member = member.trim_ascii();
            let member = member.split(|&b| b == b';').next().unwrap_or_default();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.delivery = Delivery::Incremental,
                b"i=?0" => priority.delivery = Delivery::Whole,
                _ => {}
            }
        }
        priority
    }
}
