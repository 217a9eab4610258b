//! The agent's HTTP face.
//!
//! ```text
//! accept ─► connections ─► TLS ─► head ─► auth ─► routes ─► readings
//!           who must go      who may pass   what is where
//! ```
//!
//! One request a connection, and a bound on everything: how long its head may
//! take, how large it may be, how long the whole may last, how many there are
//! at once. So a client can cost its own connection and no one else's scrape,
//! and with no client there is no timer.

mod auth;
mod client_names;
mod connections;
mod file_watch;
pub mod listen;
pub mod page;
mod passwords;
mod queue;
mod routes;
mod server;
mod tls;
mod tokens;
mod verdict_cache;
mod web;
mod web_config;
mod web_source;

pub use self::auth::{bearer, credentials};
pub use self::routes::accepts_gzip;
pub use self::server::serve;
pub use self::web::Web;
pub use self::web_config::check_web_config;
pub use self::web_source::ReadText;
