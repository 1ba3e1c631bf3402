//! The head of a request that clients repeat: it is copied, not built from its fields again.

use selvedge_proto::field_section::{RequestRules, SectionError, StreamEnd, build_request, copy_request};
use selvedge_proto::head::RequestHead;
use selvedge_proto::http2::{self, FieldSection};

/// The last head of a connection, as soon as it is repeated.
#[derive(Default)]
pub(super) struct RepeatedHead(Option<Box<(Vec<u8>, RequestHead)>>);

impl RepeatedHead {
    /// Makes the head of the section that has arrived. Returns the length of the content, if the head states it.
    pub(super) fn build(
        &mut self,
        protocol: &http2::Connection,
        (section, end): (FieldSection, StreamEnd),
        rules: &RequestRules<'_>,
        (bytes, head): (&mut Vec<u8>, &mut RequestHead),
    ) -> Result<Option<u64>, SectionError> {
        if section != FieldSection::Repeated {
            self.0 = None;
        } else if let Some(known) = &self.0 {
            return copy_request((&known.0, &known.1), end, bytes, head);
        }
        let length = build_request(protocol.fields(), end, rules, bytes, head)?;
        if section == FieldSection::Repeated {
            self.0 = Some(Box::new((bytes.clone(), head.clone())));
        }
        Ok(length)
    }
}
