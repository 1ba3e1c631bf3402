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
    /// are ignored.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_and_unknown_members_ignored() {
        let priority = |urgency, delivery| Priority { urgency, delivery };
        for (value, expected) in [
            ("", Priority::default()),
            ("u=0", priority(0, Delivery::Whole)),
            ("u=7, i", priority(7, Delivery::Incremental)),
            ("i=?1,u=1", priority(1, Delivery::Incremental)),
            ("i, i=?0", priority(3, Delivery::Whole)),
            ("u=1, u=5", priority(5, Delivery::Whole)),
            (" u=2;x=1 , i;y", priority(2, Delivery::Incremental)),
            ("x, u=4, z=\"a\"", priority(4, Delivery::Whole)),
            ("u=8", Priority::default()),
            ("u=-1", Priority::default()),
            ("u=12", Priority::default()),
            ("U=1, I", Priority::default()),
            ("u = 1", Priority::default()),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
        }
    }
}
