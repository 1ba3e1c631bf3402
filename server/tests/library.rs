//! Tests of embedded sites. An application that embeds them must respond as the program does: on selvedge's
//! server, on axum's, and called directly.

mod library {
    mod client;
    mod temp_directory;

    mod comparison;
    mod serve_dir;
    mod sites;
}
