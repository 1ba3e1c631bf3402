//! The content of a response that passes through the compression layer.
//!
//! The encoder takes all content that is available. If no more is available, all encoded output is
//! flushed. So an event is sent when it happens, and a page is not split into small chunks. Holds at
//! most one chunk of the inner content and the output of one encoding step.

use crate::tower::BoxError;
use crate::tower::compression::encoder::Encoder;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Input bytes that are encoded before the task yields: 0.5 ms with the slowest coding.
const BYTES_PER_YIELD: usize = 32 * 1024;
/// Minimum cost of a chunk in input bytes, so that many small chunks also lead to a yield.
const CHUNK_COST_BYTES_MIN: usize = 128;
/// Encoded bytes that are collected before a chunk is passed on, while more input is available.
const OUTPUT_BYTES_MIN: usize = 16 * 1024;

pin_project! {
    /// The content of a response that passed through [`Compression`](crate::Compression): encoded
    /// or unchanged. An unchanged [`SendFile`](crate::SendFile) is still sent by the kernel.
    pub struct CompressedBody<B> {
        #[pin]
        form: BodyForm<B>,
    }
}

pin_project! {
    #[project = FormProjection]
    enum BodyForm<B> {
        Unchanged { #[pin] body: B },
        Encoded { #[pin] body: B, job: Box<OngoingEncoding> },
        Cached { bytes: Bytes },
        HeadOnly { length: Option<u64> },
    }
}

/// Content that is being encoded.
struct OngoingEncoding {
    stage: EncodingStage,
    /// Content that the encoder has not read yet.
    unread_input: Bytes,
    /// Whether the encoder has input that is not flushed yet.
    has_unflushed: bool,
    /// Input bytes encoded since the task last yielded.
    bytes_since_yield: usize,
    yielding: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

enum EncodingStage {
    Encoding(Encoder),
    /// All content was sent; trailers may follow.
    Ended(Option<HeaderMap>),
}

impl<B> CompressedBody<B> {
    pub(super) fn unchanged(body: B) -> Self {
        Self { form: BodyForm::Unchanged { body } }
    }

    pub(super) fn encoded(body: B, encoder: Encoder) -> Self {
        let job = OngoingEncoding {
            stage: EncodingStage::Encoding(encoder),
            unread_input: Bytes::new(),
            has_unflushed: false,
            bytes_since_yield: 0,
            yielding: None,
        };
        Self { form: BodyForm::Encoded { body, job: Box::new(job) } }
    }

    pub(super) fn cached(bytes: Bytes) -> Self {
        Self { form: BodyForm::Cached { bytes } }
    }

    /// Creates content of this length for a response to HEAD, which sends none of it.
    pub(super) fn head_only(length: Option<u64>) -> Self {
        Self { form: BodyForm::HeadOnly { length } }
    }
}

impl OngoingEncoding {
    /// Yields to other tasks after [`BYTES_PER_YIELD`] bytes.
    fn poll_yield(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielding.is_none() && self.bytes_since_yield >= BYTES_PER_YIELD {
            self.yielding = Some(Box::pin(tokio::task::yield_now()));
        }
        if let Some(yielding) = &mut self.yielding {
            ready!(yielding.as_mut().poll(cx));
            self.yielding = None;
            self.bytes_since_yield = 0;
        }
        Poll::Ready(())
    }

    /// Encodes the unread input, at most [`BYTES_PER_YIELD`] bytes.
    fn encode_input(&mut self) -> std::io::Result<()> {
        let EncodingStage::Encoding(encoder) = &mut self.stage else { return Ok(()) };
        let chunk = self.unread_input.split_to(self.unread_input.len().min(BYTES_PER_YIELD));
        self.bytes_since_yield += chunk.len().max(CHUNK_COST_BYTES_MIN);
        self.has_unflushed |= !chunk.is_empty();
        encoder.write(&chunk)
    }

    /// Takes the encoded output, if it has at least `bytes_min` bytes.
    fn take_output(&mut self, bytes_min: usize) -> Option<Bytes> {
        match &mut self.stage {
            EncodingStage::Encoding(encoder) if encoder.output_bytes() >= bytes_min => {
                Some(encoder.take_output().into())
            }
            _ => None,
        }
    }

    /// Flushes all input through the encoder.
    fn flush(&mut self) -> std::io::Result<Option<Bytes>> {
        if let EncodingStage::Encoding(encoder) = &mut self.stage
            && std::mem::take(&mut self.has_unflushed)
        {
            encoder.flush()?;
        }
        Ok(self.take_output(1))
    }

    /// Ends the encoded content, which these trailers follow.
    fn finish(&mut self, trailers: Option<HeaderMap>) -> std::io::Result<Bytes> {
        match std::mem::replace(&mut self.stage, EncodingStage::Ended(trailers)) {
            EncodingStage::Encoding(encoder) => Ok(encoder.finish()?.into()),
            EncodingStage::Ended(_) => Ok(Bytes::new()),
        }
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// Polls the next chunk of encoded content.
fn poll_encoded<B>(mut body: Pin<&mut B>, job: &mut OngoingEncoding, cx: &mut Context<'_>) -> PolledFrame
where
    B: Body,
    B::Error: Into<BoxError>,
{
    loop {
        if let EncodingStage::Ended(trailers) = &mut job.stage {
            return Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        }
        ready!(job.poll_yield(cx));
        if job.unread_input.is_empty() {
            match body.as_mut().poll_frame(cx) {
                Poll::Pending => {
                    job.bytes_since_yield = 0;
                    return match job.flush()? {
                        Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                        None => Poll::Pending,
                    };
                }
                Poll::Ready(None) => return Poll::Ready(Some(Ok(Frame::data(job.finish(None)?)))),
                Poll::Ready(Some(Err(error))) => {
                    job.stage = EncodingStage::Ended(None);
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(mut data) => job.unread_input = data.copy_to_bytes(data.remaining()),
                    Err(frame) => {
                        let end = job.finish(frame.into_trailers().ok())?;
                        return Poll::Ready(Some(Ok(Frame::data(end))));
                    }
                },
            }
        }
        job.encode_input()?;
        if let Some(bytes) = job.take_output(OUTPUT_BYTES_MIN) {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
    }
}

impl<B> Body for CompressedBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        match self.project().form.project() {
            FormProjection::Unchanged { body } => body.poll_frame(cx).map(|frame| {
                frame.map(|frame| match frame {
                    Ok(frame) => Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
                    Err(error) => Err(error.into()),
                })
            }),
            FormProjection::Encoded { body, job: work } => {
                let polled = poll_encoded(body, work, cx);
                if let Poll::Ready(Some(Err(_))) = polled {
                    work.stage = EncodingStage::Ended(None);
                }
                polled
            }
            FormProjection::Cached { bytes } => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            FormProjection::HeadOnly { .. } => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.form {
            BodyForm::Unchanged { body } => body.is_end_stream(),
            BodyForm::Encoded { job: work, .. } => matches!(work.stage, EncodingStage::Ended(None)),
            BodyForm::Cached { bytes } => bytes.is_empty(),
            BodyForm::HeadOnly { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.form {
            BodyForm::Unchanged { body } => body.size_hint(),
            BodyForm::Encoded { job: work, .. } if matches!(work.stage, EncodingStage::Ended(_)) => {
                SizeHint::with_exact(0)
            }
            BodyForm::Encoded { .. } => SizeHint::default(),
            BodyForm::Cached { bytes } => SizeHint::with_exact(bytes.len() as u64),
            BodyForm::HeadOnly { length } => length.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl<B> fmt::Debug for CompressedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.form {
            BodyForm::Unchanged { .. } => "CompressedBody(unchanged)",
            BodyForm::Encoded { .. } => "CompressedBody(encoded)",
            BodyForm::Cached { .. } => "CompressedBody(cached)",
            BodyForm::HeadOnly { .. } => "CompressedBody(head only)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tower::compression::encoder::CompressionLevel;
    use crate::tower::compression::encoder::tests::{decode, decode_partial};
    use selvedge_proto::encoding::Coding;
    use std::collections::VecDeque;
    use std::task::Waker;

    /// Content whose chunks follow a script.
    #[derive(Default)]
    struct Script(VecDeque<ScriptStep>);

    enum ScriptStep {
        Data(Vec<u8>),
        Wait,
        Trailers,
        Fail,
    }

    impl Body for Script {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> PolledFrame {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(ScriptStep::Wait) => Poll::Pending,
                Some(ScriptStep::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data.into())))),
                Some(ScriptStep::Fail) => Poll::Ready(Some(Err("the content failed".into()))),
                Some(ScriptStep::Trailers) => {
                    let mut trailers = HeaderMap::new();
                    trailers.insert("x-sum", 7.into());
                    Poll::Ready(Some(Ok(Frame::trailers(trailers))))
                }
            }
        }
    }

    fn compress(coding: Coding, steps: impl IntoIterator<Item = ScriptStep>) -> Pin<Box<CompressedBody<Script>>> {
        let encoder = Encoder::new(coding, CompressionLevel::EventStream, None).unwrap();
        Box::pin(CompressedBody::encoded(Script(steps.into_iter().collect()), encoder))
    }

    fn poll(body: &mut Pin<Box<CompressedBody<Script>>>) -> PolledFrame {
        body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    /// Reads until the end, also across pending polls. Returns the content and the trailers.
    fn read(body: &mut Pin<Box<CompressedBody<Script>>>) -> (Vec<u8>, Option<HeaderMap>) {
        let (mut coded, mut trailers) = (Vec::new(), None);
        loop {
            match poll(body) {
                Poll::Pending => {}
                Poll::Ready(None) => return (coded, trailers),
                Poll::Ready(Some(frame)) => match frame.unwrap().into_data() {
                    Ok(data) => coded.extend_from_slice(&data),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    #[test]
    fn each_event_can_be_decoded_before_the_next_arrives() {
        for coding in Coding::ALL {
            let events = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];
            let steps = events
                .iter()
                .flat_map(|event| [ScriptStep::Data(event.as_bytes().to_vec()), ScriptStep::Wait, ScriptStep::Wait]);
            let mut body = compress(coding, steps);
            let (mut coded, mut expected) = (Vec::new(), String::new());
            for event in events {
                let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else { panic!("the event is not sent") };
                coded.extend_from_slice(&frame.into_data().unwrap());
                expected.push_str(event);
                assert_eq!(decode_partial(coding, &coded), expected.as_bytes(), "{coding:?}");
                assert!(poll(&mut body).is_pending(), "no further event is available");
            }
            coded.extend(read(&mut body).0);
            assert_eq!(decode(coding, &coded), expected.as_bytes());
            assert!(body.is_end_stream());
        }
    }

    #[test]
    fn decoded_content_equals_input_for_any_chunking() {
        let mut seed = 7_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        for round in 0..30 {
            let length = random(200_000);
            // Depending on the number of distinct bytes, it is compressible or not.
            let distinct_bytes = 2 + random(255);
            let content: Vec<u8> = (0..length).map(|_| random(distinct_bytes) as u8).collect();
            for coding in Coding::ALL {
                let (mut steps, mut at) = (Vec::new(), 0);
                while at < content.len() {
                    let bits = 1 + random(17);
                    let end = content.len().min(at + random(1 << bits));
                    steps.push(ScriptStep::Data(content[at..end].to_vec()));
                    if random(4) == 0 {
                        steps.push(ScriptStep::Wait);
                    }
                    at = end;
                }
                let (coded, trailers) = read(&mut compress(coding, steps));
                assert!(decode(coding, &coded) == content, "round {round}, {coding:?}, {length} bytes");
                assert_eq!(trailers, None);
            }
        }
    }

    #[test]
    fn trailers_are_forwarded() {
        let mut body = compress(Coding::Gzip, [ScriptStep::Data(b"content".to_vec()), ScriptStep::Trailers]);
        let (coded, trailers) = read(&mut body);
        assert_eq!(decode(Coding::Gzip, &coded), b"content");
        assert_eq!(trailers.unwrap()["x-sum"], "7");
    }

    #[test]
    fn failed_content_is_not_ended_as_complete() {
        for coding in Coding::ALL {
            let mut body = compress(coding, [ScriptStep::Data(vec![b'a'; 5000]), ScriptStep::Fail]);
            assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(_)))));
            assert!(matches!(poll(&mut body), Poll::Ready(None)));
        }
    }

    #[test]
    fn encoding_yields_to_other_tasks() {
        let chunks = 20;
        let whole = vec![b'a'; chunks * BYTES_PER_YIELD];
        let many_chunks = std::iter::repeat_with(|| ScriptStep::Data(b"a".to_vec())).take(BYTES_PER_YIELD);
        let bodies = [
            (compress(Coding::Zstd, [ScriptStep::Data(whole)]), chunks),
            (compress(Coding::Zstd, many_chunks), CHUNK_COST_BYTES_MIN),
        ];
        for (mut body, yields_min) in bodies {
            let mut yields = 0;
            loop {
                match poll(&mut body) {
                    Poll::Pending => yields += 1,
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(frame)) => drop(frame.unwrap()),
                }
            }
            assert!(yields >= yields_min - 1, "{yields} yields");
        }
    }
}
