//! The content of a response that passes through the compression layer.

use crate::coding::encoder::Encoder;
use crate::coding::ongoing::{OngoingEncoding, Piece, PolledPiece};
use crate::tower::BoxError;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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
        Encoded { #[pin] body: B, job: Box<OngoingEncoding<HeaderMap>> },
        Cached { bytes: Bytes },
        HeadOnly { length: Option<u64> },
    }
}

impl<B> CompressedBody<B> {
    pub(super) fn unchanged(body: B) -> Self {
        Self { form: BodyForm::Unchanged { body } }
    }

    pub(super) fn encoded(body: B, encoder: Box<Encoder>) -> Self {
        Self { form: BodyForm::Encoded { body, job: Box::new(OngoingEncoding::new(encoder)) } }
    }

    pub(super) fn cached(bytes: Bytes) -> Self {
        Self { form: BodyForm::Cached { bytes } }
    }

    /// Creates content of this length for a response to HEAD, which sends none of it.
    pub(super) fn head_only(length: Option<u64>) -> Self {
        Self { form: BodyForm::HeadOnly { length } }
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// Polls the next frame of content as a piece.
fn poll_input<B>(body: Pin<&mut B>, cx: &mut Context<'_>) -> PolledPiece<HeaderMap>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let Some(frame) = ready!(body.poll_frame(cx)) else { return Poll::Ready(None) };
    Poll::Ready(match frame.map(Frame::into_data) {
        Ok(Ok(mut data)) => Some(Ok(Piece::Data(data.copy_to_bytes(data.remaining())))),
        Ok(Err(frame)) => frame.into_trailers().ok().map(|trailers| Ok(Piece::Trailers(trailers))),
        Err(error) => Some(Err(error.into())),
    })
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
            FormProjection::Encoded { mut body, job } => {
                let polled = job.poll_piece(cx, |cx| poll_input(body.as_mut(), cx));
                polled.map_ok(|piece| match piece {
                    Piece::Data(data) => Frame::data(data),
                    Piece::Trailers(trailers) => Frame::trailers(trailers),
                })
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
            BodyForm::Encoded { job, .. } => job.has_ended(),
            BodyForm::Cached { bytes } => bytes.is_empty(),
            BodyForm::HeadOnly { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.form {
            BodyForm::Unchanged { body } => body.size_hint(),
            BodyForm::Encoded { job, .. } if job.has_sent_content() => SizeHint::with_exact(0),
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
    use crate::coding::encoder::CompressionLevel;
    use crate::coding::encoder::tests::{decode, decode_partial};
    use crate::coding::ongoing::{BYTES_PER_YIELD, CHUNK_COST_BYTES_MIN};
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
        Box::pin(CompressedBody::encoded(Script(steps.into_iter().collect()), Box::new(encoder)))
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
