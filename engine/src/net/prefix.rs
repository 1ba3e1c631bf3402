//! The bytes before the first protocol of a connection, such as a header in which a proxy names the client.

use crate::net::sys::register_readable;
use rustix::net::{RecvFlags, recv};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Receives a prefix of at most `bytes_max` bytes, and leaves what follows it in the socket. `parse` returns its length and
/// value; `None` if it is not complete.
///
/// # Errors
/// If the peer closes the connection or the time passes before the prefix is complete, or the error of `parse`.
pub(crate) async fn receive_prefix<T>(
    fd: OwnedFd,
    (bytes_max, time): (usize, Duration),
    parse: impl Fn(&[u8]) -> io::Result<Option<(usize, T)>>,
) -> io::Result<(OwnedFd, T)> {
    let socket = register_readable(fd)?;
    let value = tokio::time::timeout(time, receive(&socket, bytes_max, parse)).await??;
    Ok((socket.into_inner(), value))
}

async fn receive<T>(
    socket: &AsyncFd<OwnedFd>,
    bytes_max: usize,
    parse: impl Fn(&[u8]) -> io::Result<Option<(usize, T)>>,
) -> io::Result<T> {
    let mut bytes = vec![0; bytes_max];
    loop {
        let mut ready = socket.readable().await?;
        let Ok(peeked) = ready.try_io(|socket| receive_now(socket.get_ref(), &mut bytes, RecvFlags::PEEK)) else {
            continue;
        };
        let count = peeked?;
        if let Some((len, value)) = parse(&bytes[..count])? {
            // They were there a moment ago, and no other task receives from the socket.
            let taken = receive_now(socket.get_ref(), &mut bytes[..len], RecvFlags::empty())?;
            return if taken == len { Ok(value) } else { Err(ErrorKind::UnexpectedEof.into()) };
        }
        if count == bytes_max {
            return Err(ErrorKind::InvalidData.into());
        }
        if ready.ready().is_read_closed() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // The bytes stay in the socket, so only further ones make it ready again.
        ready.clear_ready();
    }
}

/// Receives without waiting. The end of the connection is an error.
fn receive_now(fd: &OwnedFd, bytes: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    match recv(fd, bytes, flags | RecvFlags::DONTWAIT)?.1 {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Parses a text that ends with a full stop.
    fn sentence(bytes: &[u8]) -> io::Result<Option<(usize, String)>> {
        if bytes.starts_with(b"!") {
            return Err(ErrorKind::InvalidInput.into());
        }
        let end = bytes.iter().position(|&byte| byte == b'.');
        Ok(end.map(|end| (end + 1, String::from_utf8_lossy(&bytes[..end]).into_owned())))
    }

    async fn prefix(pieces: &[&[u8]], time: Duration) -> Result<(String, Vec<u8>), ErrorKind> {
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        let receiving = tokio::task::spawn(receive_prefix(receiver.into(), (10, time), sentence));
        for piece in pieces {
            sender.write_all(piece).unwrap();
            tokio::task::yield_now().await;
        }
        if time.is_zero() {
            let (end, _) = (receiving.await.unwrap(), sender);
            return end.map(|_| (String::new(), Vec::new())).map_err(|error| error.kind());
        }
        drop(sender);
        let (fd, value) = receiving.await.unwrap().map_err(|error| error.kind())?;
        let mut rest = Vec::new();
        UnixStream::from(fd).read_to_end(&mut rest).unwrap();
        Ok((value, rest))
    }

    #[tokio::test]
    async fn a_prefix_has_the_length_of_its_parser_and_bounds() {
        let second = Duration::from_secs(60);
        let expected = Ok(("ab".to_owned(), b"rest.".to_vec()));
        assert_eq!(prefix(&[b"ab.rest."], second).await, expected);
        assert_eq!(prefix(&[b"a", b"b", b".rest."], second).await, expected);
        assert_eq!(prefix(&[b"ab"], second).await, Err(ErrorKind::UnexpectedEof));
        assert_eq!(prefix(&[b"0123456789."], second).await, Err(ErrorKind::InvalidData));
        assert_eq!(prefix(&[b"!"], second).await, Err(ErrorKind::InvalidInput));
        assert_eq!(prefix(&[b"ab"], Duration::ZERO).await, Err(ErrorKind::TimedOut));
    }
}
