//! Field compression for HTTP/2 (RFC 7541).
