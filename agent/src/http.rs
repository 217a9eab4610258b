//! The agent's HTTP server.
//!
//! ```text
//! accept ─► connections ─► TLS ─► head ─► auth ─► routes ─► api ─► readings, recording
//!           evicts                        admits  answers
//! ```
//!
//! Each connection serves one request, and everything has a limit: the time and the size
//! of the request head, the duration of a connection, and the number of connections. A
//! client can therefore only lose its own connection, and cannot block the scrapes of
//! others. Without clients no timer runs.

mod accept;
mod answer;
mod api;
mod auth;
mod client_names;
mod connections;
mod file_watch;
pub mod listen;
mod namespaces;
mod one_time;
pub mod page;
mod passwords;
mod query;
mod queue;
mod relay;
mod routes;
mod server;
mod state;
mod time_limit;
mod tls;
mod tokens;
mod ui;
mod verdict_cache;
mod web;
mod web_config;
mod web_source;

pub use self::accept::accepts_gzip;
pub use self::api::{DESCRIPTION, Route, check_alerts};
pub use self::auth::{Authorizers, bearer, credentials};
pub use self::one_time::OneTime;
pub use self::query::check_query;
pub use self::relay::{Relay, relay};
pub use self::server::serve;
pub use self::web::Web;
pub use self::web_config::check_web_config;
pub use self::web_source::ReadText;
