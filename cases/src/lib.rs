//! Requests as raw bytes, and what becomes of each: one text file per RFC section.
//!
//! The files are data for tests. Each row runs through the protocol crate whole, byte by
//! byte and at random splits, and through a server over a socket; to test one thing more,
//! add a row, not a function.
//!
//! # A row
//!
//! ```text
//! two framings are refused                                    RFC 9112 §6.3
//! > POST / HTTP/1.1
//! > Host: a
//! > Content-Length: 4
//! > Transfer-Encoding: chunked
//! >
//! = reject TwoFramings 400 close
//! ```
//!
//! First a name, which no other row has, two spaces or more, and the section that decides.
//! Then the bytes: a `>` line is the text after `> ` and CRLF, a `>-` line is the text after
//! `>- ` and no line end. Then one `=` line for each message, in order. Rows are separated
//! by empty lines; a line that begins with `#` is a comment.
//!
//! | verdict | meaning |
//! |---|---|
//! | `= accept METHOD TARGET [key=value]… [keep\|close]` | the request goes to the application |
//! | `= reject NAME STATUS close` | it is refused, as [`selvedge_proto::Reject`] says |
//! | `= answer STATUS [name: value]… [!name]… [body="…"] [keep\|close]` | what [`model`] answers; the brackets around a field are part of the row, and `[!name]` says that the field is absent |
//! | `= wait` | nothing is refused, and more bytes are needed |
//!
//! The keys of `accept` are `version`, `host`, `path`, `query`, `content`, `trailers` and
//! `expect`; see [`verdict::accept`]. A row names as many as it cares for. What follows a
//! reject or a `close` is never read, so such a verdict is the last of its row.
//!
//! # Escapes
//!
//! In the bytes and in the values of a verdict:
//!
//! | written | stands for |
//! |---|---|
//! | `\r` `\n` `\t` `\0` | CR, LF, tab, NUL |
//! | `\\` `\"` | a backslash, a quotation mark |
//! | `\xHH` | the octet HH |
//! | `\{text\*COUNT\}` | the text, COUNT times; it may hold the escapes above |

#![forbid(unsafe_code)]

pub mod escape;
pub mod model;
pub mod reading;
mod rows;
pub mod verdict;

pub use reading::{Reading, read};
pub use rows::{Case, Problem, load, parse};
pub use verdict::{Verdict, check};
