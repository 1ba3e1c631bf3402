//! Sites as applications: what the program answers, an application that has them among its routes
//! answers, too, on this library's server, on axum's, and to a plain call.

mod library {
    mod asking;
    mod folder;

    mod compared;
    mod configured;
    mod dir;
}
