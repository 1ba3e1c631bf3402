//! The content of an answer on its way through the layer.
//!
//! What the inner content has at hand is coded; once it has nothing more for now, all that was
//! taken in goes out. So an event arrives when it happens, and a page is not cut into pieces.
//! Never holds more than one piece of the inner content and what a piece of work makes of it.

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

/// Compressed at once before others have their turn: half a millisecond with the slowest coding.
const WORK_BYTES_MAX: usize = 32 * 1024;
/// What a piece of content counts as at least, so that many small ones have an end, too.
const PIECE_WORK_BYTES: usize = 128;
/// So much coded content is passed on, while there is more to code.
const READY_BYTES: usize = 16 * 1024;

pin_project! {
    /// The content of an answer that came through [`Compression`](crate::Compression): coded,
    /// or as it was. A [`SendFile`](crate::SendFile) that is left alone is still one.
    pub struct CompressedBody<B> {
        #[pin]
        form: Form<B>,
    }
}

pin_project! {
    #[project = FormProjection]
    enum Form<B> {
        Alone { #[pin] body: B },
        Coded { #[pin] body: B, work: Box<Work> },
        Kept { bytes: Bytes },
        Unsent { length: Option<u64> },
    }
}

/// Content that is being coded.
struct Work {
    stage: Stage,
    /// Content that has yet to be taken in.
    at_hand: Bytes,
    /// Whether the encoder has something that no flush has put out.
    holds: bool,
    /// Done since others had their turn.
    done_bytes: usize,
    rest: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

enum Stage {
    Coding(Encoder),
    /// All of the content has gone out.
    Ended(Option<HeaderMap>),
}

impl<B> CompressedBody<B> {
    pub(super) fn alone(body: B) -> Self {
        Self { form: Form::Alone { body } }
    }

    pub(super) fn coded(body: B, encoder: Encoder) -> Self {
        let work =
            Work { stage: Stage::Coding(encoder), at_hand: Bytes::new(), holds: false, done_bytes: 0, rest: None };
        Self { form: Form::Coded { body, work: Box::new(work) } }
    }

    pub(super) fn kept(bytes: Bytes) -> Self {
        Self { form: Form::Kept { bytes } }
    }

    /// Content of this length, of which only the head is sent.
    pub(super) fn unsent(length: Option<u64>) -> Self {
        Self { form: Form::Unsent { length } }
    }
}

impl Work {
    /// Gives others a turn when enough was done.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.rest.is_none() && self.done_bytes >= WORK_BYTES_MAX {
            self.rest = Some(Box::pin(tokio::task::yield_now()));
        }
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(cx));
            self.rest = None;
            self.done_bytes = 0;
        }
        Poll::Ready(())
    }

    /// Takes in what is at hand, as much as is done at once.
    fn advance(&mut self) -> std::io::Result<()> {
        let Stage::Coding(encoder) = &mut self.stage else { return Ok(()) };
        let piece = self.at_hand.split_to(self.at_hand.len().min(WORK_BYTES_MAX));
        self.done_bytes += piece.len().max(PIECE_WORK_BYTES);
        self.holds |= !piece.is_empty();
        encoder.write(&piece)
    }

    /// What is ready, where it is at least so much.
    fn ready(&mut self, bytes_min: usize) -> Option<Bytes> {
        match &mut self.stage {
            Stage::Coding(encoder) if encoder.ready_bytes() >= bytes_min => Some(encoder.take().into()),
            _ => None,
        }
    }

    /// Puts out all that was taken in.
    fn flush(&mut self) -> std::io::Result<Option<Bytes>> {
        if let Stage::Coding(encoder) = &mut self.stage
            && std::mem::take(&mut self.holds)
        {
            encoder.flush()?;
        }
        Ok(self.ready(1))
    }

    /// Ends the content, before these fields.
    fn end(&mut self, trailers: Option<HeaderMap>) -> std::io::Result<Bytes> {
        match std::mem::replace(&mut self.stage, Stage::Ended(trailers)) {
            Stage::Coding(encoder) => Ok(encoder.finish()?.into()),
            Stage::Ended(_) => Ok(Bytes::new()),
        }
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// The next piece of coded content.
fn poll_coded<B>(mut body: Pin<&mut B>, work: &mut Work, cx: &mut Context<'_>) -> Polled
where
    B: Body,
    B::Error: Into<BoxError>,
{
    loop {
        if let Stage::Ended(trailers) = &mut work.stage {
            return Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        }
        ready!(work.poll_turn(cx));
        if work.at_hand.is_empty() {
            match body.as_mut().poll_frame(cx) {
                Poll::Pending => {
                    work.done_bytes = 0;
                    return match work.flush()? {
                        Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                        None => Poll::Pending,
                    };
                }
                Poll::Ready(None) => return Poll::Ready(Some(Ok(Frame::data(work.end(None)?)))),
                Poll::Ready(Some(Err(error))) => {
                    work.stage = Stage::Ended(None);
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(mut data) => work.at_hand = data.copy_to_bytes(data.remaining()),
                    Err(frame) => {
                        let end = work.end(frame.into_trailers().ok())?;
                        return Poll::Ready(Some(Ok(Frame::data(end))));
                    }
                },
            }
        }
        work.advance()?;
        if let Some(bytes) = work.ready(READY_BYTES) {
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

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        match self.project().form.project() {
            FormProjection::Alone { body } => body.poll_frame(cx).map(|frame| {
                frame.map(|frame| match frame {
                    Ok(frame) => Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
                    Err(error) => Err(error.into()),
                })
            }),
            FormProjection::Coded { body, work } => {
                let polled = poll_coded(body, work, cx);
                if let Poll::Ready(Some(Err(_))) = polled {
                    work.stage = Stage::Ended(None);
                }
                polled
            }
            FormProjection::Kept { bytes } => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            FormProjection::Unsent { .. } => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.form {
            Form::Alone { body } => body.is_end_stream(),
            Form::Coded { work, .. } => matches!(work.stage, Stage::Ended(None)),
            Form::Kept { bytes } => bytes.is_empty(),
            Form::Unsent { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.form {
            Form::Alone { body } => body.size_hint(),
            Form::Coded { work, .. } if matches!(work.stage, Stage::Ended(_)) => SizeHint::with_exact(0),
            Form::Coded { .. } => SizeHint::default(),
            Form::Kept { bytes } => SizeHint::with_exact(bytes.len() as u64),
            Form::Unsent { length } => length.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl<B> fmt::Debug for CompressedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.form {
            Form::Alone { .. } => "CompressedBody(alone)",
            Form::Coded { .. } => "CompressedBody(coded)",
            Form::Kept { .. } => "CompressedBody(kept)",
            Form::Unsent { .. } => "CompressedBody(unsent)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tower::compression::encoder::Effort;
    use crate::tower::compression::encoder::tests::{decoded, decoded_so_far};
    use selvedge_proto::encoding::Coding;
    use std::collections::VecDeque;
    use std::task::Waker;

    /// Content whose pieces come when the test says so.
    #[derive(Default)]
    struct Script(VecDeque<Step>);

    enum Step {
        Data(Vec<u8>),
        Wait,
        Trailers,
        Fail,
    }

    impl Body for Script {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Polled {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(Step::Wait) => Poll::Pending,
                Some(Step::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data.into())))),
                Some(Step::Fail) => Poll::Ready(Some(Err("it failed".into()))),
                Some(Step::Trailers) => {
                    let mut trailers = HeaderMap::new();
                    trailers.insert("x-sum", 7.into());
                    Poll::Ready(Some(Ok(Frame::trailers(trailers))))
                }
            }
        }
    }

    fn compress(coding: Coding, steps: impl IntoIterator<Item = Step>) -> Pin<Box<CompressedBody<Script>>> {
        let encoder = Encoder::new(coding, Effort::Stream, None).unwrap();
        Box::pin(CompressedBody::coded(Script(steps.into_iter().collect()), encoder))
    }

    fn poll(body: &mut Pin<Box<CompressedBody<Script>>>) -> Polled {
        body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    /// All that comes until the end, however often it waits, and the fields behind it.
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
    fn an_event_can_be_decoded_before_the_next() {
        for coding in Coding::ALL {
            let events = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];
            let steps = events.iter().flat_map(|event| [Step::Data(event.as_bytes().to_vec()), Step::Wait, Step::Wait]);
            let mut body = compress(coding, steps);
            let (mut coded, mut expected) = (Vec::new(), String::new());
            for event in events {
                let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else { panic!("the event goes out") };
                coded.extend_from_slice(&frame.into_data().unwrap());
                expected.push_str(event);
                assert_eq!(decoded_so_far(coding, &coded), expected.as_bytes(), "{coding:?}");
                assert!(poll(&mut body).is_pending(), "nothing more has happened");
            }
            coded.extend(read(&mut body).0);
            assert_eq!(decoded(coding, &coded), expected.as_bytes());
            assert!(body.is_end_stream());
        }
    }

    #[test]
    fn content_is_the_same_again_however_it_comes() {
        let mut seed = 7_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        for round in 0..30 {
            let length = random(200_000);
            // Some of it can be compressed, and some cannot.
            let letters = 2 + random(255);
            let content: Vec<u8> = (0..length).map(|_| random(letters) as u8).collect();
            for coding in Coding::ALL {
                let (mut steps, mut at) = (Vec::new(), 0);
                while at < content.len() {
                    let bits = 1 + random(17);
                    let end = content.len().min(at + random(1 << bits));
                    steps.push(Step::Data(content[at..end].to_vec()));
                    if random(4) == 0 {
                        steps.push(Step::Wait);
                    }
                    at = end;
                }
                let (coded, trailers) = read(&mut compress(coding, steps));
                assert!(decoded(coding, &coded) == content, "round {round}, {coding:?}, {length} bytes");
                assert_eq!(trailers, None);
            }
        }
    }

    #[test]
    fn trailers_pass() {
        let mut body = compress(Coding::Gzip, [Step::Data(b"content".to_vec()), Step::Trailers]);
        let (coded, trailers) = read(&mut body);
        assert_eq!(decoded(Coding::Gzip, &coded), b"content");
        assert_eq!(trailers.unwrap()["x-sum"], "7");
    }

    #[test]
    fn content_that_fails_does_not_end_well() {
        for coding in Coding::ALL {
            let mut body = compress(coding, [Step::Data(vec![b'a'; 5000]), Step::Fail]);
            assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(_)))));
            assert!(matches!(poll(&mut body), Poll::Ready(None)));
        }
    }

    #[test]
    fn others_have_a_turn_between_pieces_of_work() {
        let pieces = 20;
        let whole = vec![b'a'; pieces * WORK_BYTES_MAX];
        let many = std::iter::repeat_with(|| Step::Data(b"a".to_vec())).take(WORK_BYTES_MAX);
        let bodies =
            [(compress(Coding::Zstd, [Step::Data(whole)]), pieces), (compress(Coding::Zstd, many), PIECE_WORK_BYTES)];
        for (mut body, turns_min) in bodies {
            let mut turns = 0;
            loop {
                match poll(&mut body) {
                    Poll::Pending => turns += 1,
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(frame)) => drop(frame.unwrap()),
                }
            }
            assert!(turns >= turns_min - 1, "{turns} turns");
        }
    }
}
