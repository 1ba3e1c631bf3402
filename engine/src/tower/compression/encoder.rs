//! One content coding at work: bytes in, coded bytes out.
//!
//! What goes in comes out by the next flush at the latest, so that a client can decode all
//! that it was sent. Never waits, and never chooses the coding.

use selvedge_proto::encoding::Coding;
use std::io::{self, Write};
use zstd::stream::raw::CParameter;

/// How much is spent on making content small.
///
/// Figures are of one core and 1.8 MB of source text: share of its size, MB/s, and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Little memory for each of many streams that live long: zstd 0.33, 240, 110 KiB idle;
    /// Brotli 0.32, 90, 380 KiB; gzip 0.31, 150, 310 KiB.
    Stream,
    /// Content that is made smaller while it is sent: zstd 0.28, 180, 1.1 MiB; Brotli 0.29,
    /// 80, 1.2 MiB; gzip 0.27, 70, 380 KiB.
    Content,
    /// Content that is made smaller once and sent often: Brotli and zstd 0.20, 1 to 2; gzip
    /// 0.27, 30.
    Best,
}

/// The window of content that is sent as it is made, as a power of two: 256 KiB. A client holds
/// as much for each answer.
const WINDOW_BITS: u32 = 18;
/// The same of streams: 64 KiB.
const STREAM_WINDOW_BITS: u32 = 16;
/// The same of content that is sent often: 4 MiB. RFC 9659 lets clients refuse more than 8.
const BEST_WINDOW_BITS: u32 = 22;
/// Brotli's smallest (RFC 7932 §9.1), with one bit more, since some decoders refuse it.
const BROTLI_WINDOW_BITS_MIN: u32 = 11;
/// What Brotli passes on at once.
const BROTLI_BUFFER_BYTES: usize = 4096;

/// Makes coded content.
pub(super) enum Encoder {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Begins content of this length, where that is known: then it has to be so.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn new(coding: Coding, effort: Effort, length: Option<u64>) -> io::Result<Self> {
        let window_bits = match effort {
            Effort::Stream => STREAM_WINDOW_BITS,
            Effort::Content => WINDOW_BITS,
            Effort::Best => BEST_WINDOW_BITS,
        };
        Ok(match coding {
            Coding::Gzip => {
                let level = match effort {
                    Effort::Stream => 2,
                    Effort::Content => 4,
                    Effort::Best => 9,
                };
                Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level)))
            }
            Coding::Brotli => {
                let bits_of_length = length.map_or(u64::BITS, |length| u64::BITS - length.leading_zeros());
                let params = brotli::enc::BrotliEncoderParams {
                    quality: match effort {
                        Effort::Stream => 2,
                        Effort::Content => 3,
                        Effort::Best => 11,
                    },
                    lgwin: bits_of_length.clamp(BROTLI_WINDOW_BITS_MIN, window_bits) as i32,
                    size_hint: length.unwrap_or(0) as usize,
                    ..Default::default()
                };
                Self::Brotli(Box::new(brotli::CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &params)))
            }
            Coding::Zstd => {
                let level = match effort {
                    Effort::Stream => 1,
                    Effort::Content => 3,
                    Effort::Best => 19,
                };
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
                encoder.window_log(window_bits)?;
                match effort {
                    Effort::Stream => encoder.set_parameter(CParameter::HashLog(14))?,
                    Effort::Content => encoder.set_parameter(CParameter::HashLog(16))?,
                    Effort::Best => {}
                }
                encoder.set_pledged_src_size(length)?;
                Self::Zstd(encoder)
            }
        })
    }

    /// Takes content in.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Brotli(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// Puts all that was taken in where [`Self::take`] finds it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }

    /// How much can be taken out.
    pub(super) fn ready_bytes(&self) -> usize {
        match self {
            Self::Gzip(encoder) => encoder.get_ref().len(),
            Self::Brotli(encoder) => encoder.get_ref().len(),
            Self::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    /// Takes out what is coded.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the content: what was not taken out yet.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Read;

    /// What a client makes of coded content that may go on.
    pub(in crate::tower::compression) fn decoded_so_far(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut decoder: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(coded)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(coded, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(coded).unwrap()),
        };
        let mut content = Vec::new();
        let mut piece = [0; 1];
        // The end of what has come so far is an error to a decoder.
        while let Ok(1) = decoder.read(&mut piece) {
            content.push(piece[0]);
        }
        content
    }

    /// What a client makes of complete coded content.
    pub(in crate::tower::compression) fn decoded(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(coded).read_to_end(&mut content),
            Coding::Brotli => brotli::Decompressor::new(coded, 4096).read_to_end(&mut content),
            Coding::Zstd => zstd::stream::read::Decoder::new(coded).unwrap().read_to_end(&mut content),
        }
        .expect("the content is complete");
        content
    }

    #[test]
    fn what_was_flushed_can_be_decoded_before_the_end() {
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding, Effort::Stream, None).unwrap();
            let mut coded = Vec::new();
            for event in ["one", "two", ""] {
                encoder.write(event.as_bytes()).unwrap();
                encoder.flush().unwrap();
                coded.extend(encoder.take());
                assert!(decoded_so_far(coding, &coded).ends_with(event.as_bytes()), "{coding:?} {event}");
            }
            coded.extend(encoder.finish().unwrap());
            assert_eq!(decoded(coding, &coded), b"onetwo");
        }
    }

    #[test]
    fn content_of_every_length_is_the_same_again() {
        for coding in Coding::ALL {
            for effort in [Effort::Stream, Effort::Content, Effort::Best] {
                for length in [0_u64, 1, 1023, 1024, 1025, 300_000] {
                    let content: Vec<u8> = (0..length).map(|at| (at * at / 7) as u8).collect();
                    for known in [None, Some(length)] {
                        let mut encoder = Encoder::new(coding, effort, known).unwrap();
                        encoder.write(&content).unwrap();
                        let coded = encoder.finish().unwrap();
                        assert_eq!(decoded(coding, &coded), content, "{coding:?} {effort:?} {length}");
                    }
                }
            }
        }
    }
}
