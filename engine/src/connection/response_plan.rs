//! Decides what of an application's response is sent, and whether it ends the connection. The protocol version does not
//! matter here.

use crate::connection::app_context::AppState;
use crate::service::{Body, CloseReason, Response};
use selvedge_proto::message::AnnouncedLength;
use selvedge_proto::method::Method;
use selvedge_proto::{Persistence, StatusCode};

/// Log reason of the 500 response after a panic of the application.
pub(super) const PANICKED: &str = "the application panicked";

/// What a response depends on beside itself.
#[derive(Clone, Copy)]
pub(super) struct ResponseContext {
    pub(super) method: Method,
    /// Why the request ends the connection.
    pub(super) close_requested: Option<CloseReason>,
    /// Why the request's unread content ends the connection.
    pub(super) unread_content: Option<CloseReason>,
    pub(super) is_draining: bool,
    pub(super) app_state: AppState,
}

/// How a response is sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResponsePlan {
    /// The connection switches to another protocol.
    Upgrade,
    /// The application may not respond so. The client gets an error with this status code, and the log the reason.
    Invalid(StatusCode, &'static str),
    /// A final response.
    Final {
        length: AnnouncedLength,
        /// Whether content follows the head.
        has_content: bool,
        /// Why the connection ends after it.
        close: Option<CloseReason>,
    },
}

/// Plans a response.
#[inline]
pub(super) fn response_plan(context: ResponseContext, response: &Response) -> ResponsePlan {
    let status = response.status;
    if status.is_interim() {
        if status == StatusCode::SWITCHING_PROTOCOLS && matches!(response.body, Body::Upgrade(_)) {
            return ResponsePlan::Upgrade;
        }
        // A final response has to follow an interim one, and the application returned no other.
        return ResponsePlan::Invalid(StatusCode::INTERNAL_SERVER_ERROR, "the application responded with 1xx");
    }
    if context.method == Method::Connect && (200..300).contains(&status.code()) {
        //= RFC 9110 §9.3.6: what follows such a head is a tunnel, which is not supported
        return ResponsePlan::Invalid(StatusCode::NOT_IMPLEMENTED, "the application responded to CONNECT with 2xx");
    }
    let close = match response.reason() {
        Some(PANICKED) => Some(CloseReason::Panicked),
        _ if context.is_draining => Some(CloseReason::Draining),
        _ if context.app_state == AppState::Replaced => Some(CloseReason::AppReplaced),
        _ => context.unread_content.or(context.close_requested),
    };
    let close_by_app = || (response.persistence() == Persistence::Close).then_some(CloseReason::ClosedAfterResponse);
    let length = AnnouncedLength::of_response(status, response.body.length());
    ResponsePlan::Final { length, has_content: length.has_content(context.method), close: close.or_else(close_by_app) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::UpgradeResponse;
    use bytes::Bytes;

    const CONTEXT: ResponseContext = ResponseContext {
        method: Method::Get,
        close_requested: None,
        unread_content: None,
        is_draining: false,
        app_state: AppState::Current,
    };

    fn response(code: u16) -> Response {
        Response::new(StatusCode::new(code).unwrap()).body("content")
    }

    #[test]
    fn status_and_method_decide_what_is_sent() {
        let with = |method, response: &Response| response_plan(ResponseContext { method, ..CONTEXT }, response);
        let complete = |length, has_content| ResponsePlan::Final { length, has_content, close: None };
        let known = AnnouncedLength::Known(7);
        assert_eq!(with(Method::Get, &response(200)), complete(known, true));
        assert_eq!(with(Method::Head, &response(200)), complete(known, false));
        assert_eq!(with(Method::Get, &response(304)), complete(AnnouncedLength::Absent, false));
        assert_eq!(with(Method::Connect, &response(403)), complete(known, true));
        let upgrade = UpgradeResponse { protocol: Bytes::from_static(b"test"), handler: Box::new(drop) };
        let mut switch = response(101);
        switch.body = Body::Upgrade(Box::new(upgrade));
        assert_eq!(with(Method::Get, &switch), ResponsePlan::Upgrade);
        for (method, code, status) in [
            (Method::Get, 100, StatusCode::INTERNAL_SERVER_ERROR),
            (Method::Get, 101, StatusCode::INTERNAL_SERVER_ERROR),
            (Method::Connect, 200, StatusCode::NOT_IMPLEMENTED),
        ] {
            let ResponsePlan::Invalid(planned, _) = with(method, &response(code)) else { panic!("{code}") };
            assert_eq!(planned, status, "{code}");
        }
    }

    #[test]
    fn the_first_reason_to_close_counts() {
        let close = |context, response: &Response| match response_plan(context, response) {
            ResponsePlan::Final { close, .. } => close,
            plan => panic!("{plan:?}"),
        };
        let mut context = CONTEXT;
        let mut response = response(200);
        assert_eq!(close(context, &response), None);
        response = response.close_connection();
        assert_eq!(close(context, &response), Some(CloseReason::ClosedAfterResponse));
        context.close_requested = Some(CloseReason::CloseRequested);
        assert_eq!(close(context, &response), Some(CloseReason::CloseRequested));
        context.unread_content = Some(CloseReason::ContentUnread);
        assert_eq!(close(context, &response), Some(CloseReason::ContentUnread));
        context.app_state = AppState::Replaced;
        assert_eq!(close(context, &response), Some(CloseReason::AppReplaced));
        context.is_draining = true;
        assert_eq!(close(context, &response), Some(CloseReason::Draining));
        response = response.log_reason(PANICKED);
        assert_eq!(close(context, &response), Some(CloseReason::Panicked));
    }
}
