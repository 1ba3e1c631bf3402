//! Content that arrives fast is received in larger pieces, only while it does.

use super::scenario::{Scenario, TestServer, advance, with_virtual_time};
use super::test_app::content;
use crate::limits::{BUFFER_BYTES, COPY_BYTES_MAX, LONG_BUFFER_BYTES, Limits};
use crate::service::{Phase, Request, Response};
use selvedge_proto::StatusCode;
use std::cell::RefCell;
use std::rc::Rc;

#[test]
fn pieces_grow_while_content_arrives_fast() {
    with_virtual_time(async || {
        let sizes: Rc<RefCell<Vec<usize>>> = Rc::default();
        let seen = sizes.clone();
        let service = async move |request: &mut Request| {
            let mut all = Vec::new();
            while let Some(Ok(piece)) = request.body().chunk().await {
                seen.borrow_mut().push(piece.len());
                all.extend_from_slice(&piece);
            }
            Response::new(StatusCode::OK).body(all)
        };
        let server = TestServer::serving(service, Limits::default());
        let all = content(LONG_BUFFER_BYTES * 4);
        let client = Scenario::post("/").content(&all).at(Phase::ReadingContent, &server).await;
        let (fast, slow) = all.split_at(LONG_BUFFER_BYTES * 3);
        client.send(fast).await;
        assert!(sizes.borrow().contains(&LONG_BUFFER_BYTES), "{sizes:?}");
        for piece in slow.chunks(COPY_BYTES_MAX) {
            sizes.borrow_mut().clear();
            client.send(piece).await;
            advance(1).await;
            assert_eq!(*sizes.borrow(), [piece.len()]);
        }
        assert!(client.response().text().as_bytes() == all, "nothing is lost or doubled");
    });
}

#[test]
fn after_a_pause_pieces_are_small_again() {
    with_virtual_time(async || {
        let largest: Rc<RefCell<usize>> = Rc::default();
        let seen = largest.clone();
        let service = async move |request: &mut Request| {
            while let Some(Ok(piece)) = request.body().chunk().await {
                let mut largest = seen.borrow_mut();
                *largest = piece.len().max(*largest);
            }
            Response::new(StatusCode::NO_CONTENT)
        };
        let server = TestServer::serving(service, Limits::default());
        let all = content(LONG_BUFFER_BYTES * 4);
        let client = Scenario::post("/").content(&all).at(Phase::ReadingContent, &server).await;
        let (first, rest) = all.split_at(LONG_BUFFER_BYTES * 2);
        client.send(first).await;
        assert!(largest.take() > BUFFER_BYTES);
        let (little, rest) = rest.split_at(1);
        client.send(little).await;
        assert_eq!(largest.take(), 1);
        client.send(&rest[..BUFFER_BYTES]).await;
        assert_eq!(largest.take(), BUFFER_BYTES, "content after little content gets a usual buffer");
        client.send(&rest[BUFFER_BYTES..]).await;
        assert_eq!(client.statuses(), [204]);
    });
}

#[test]
fn chunks_keep_their_bytes_in_long_buffers() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let all = content(LONG_BUFFER_BYTES * 5);
        let chunks: Vec<u8> = all
            .chunks(50_001)
            .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
            .collect();
        let client = Scenario::post("/read").chunks("").at(Phase::ReadingContent, &server).await;
        for piece in chunks.chunks(LONG_BUFFER_BYTES + 7) {
            client.send(piece).await;
        }
        client.send("0\r\n\r\n").await;
        assert!(client.response().text().as_bytes() == all);
    });
}

#[test]
fn a_request_behind_long_content_holds_no_long_buffer_for_its_head() {
    with_virtual_time(async || {
        let held: Rc<RefCell<Vec<usize>>> = Rc::default();
        let seen = held.clone();
        let service = async move |request: &mut Request| {
            seen.borrow_mut().push(request.inner.bytes.capacity());
            match request.body().read_all().await {
                Ok(content) => Response::new(StatusCode::OK).body(content),
                Err(error) => error.into(),
            }
        };
        let server = TestServer::serving(service, Limits::default());
        let all = content(LONG_BUFFER_BYTES * 2);
        // The second request arrives with the end of the first, and with none, some or much of its own content.
        for behind in [0, 100, LONG_BUFFER_BYTES / 2] {
            let client = Scenario::post("/").content(&all).at(Phase::ReadingContent, &server).await;
            let (first, last) = all.split_at(LONG_BUFFER_BYTES + BUFFER_BYTES);
            client.send(first).await;
            let second = Scenario::post("/").content(&all);
            client.send([last, &second.head(), &all[..behind]].concat()).await;
            client.send(&all[behind..]).await;
            let all = std::str::from_utf8(&all).expect("they are letters");
            let responses: Vec<_> = client.responses().iter().map(|response| response.text() == all).collect();
            assert_eq!((responses, held.take()), (vec![true, true], vec![BUFFER_BYTES; 2]));
        }
    });
}
