//! The page for browsers on a local port, with an agent on another node behind it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::net::TcpListener;
use virtlens_kube::Remote;

use crate::cli::stdout::print;
use crate::cli::stop::Stop;
use crate::cli::ui::open_browser;
use crate::http::{OneTime, Relay, relay};

/// Serves the page of an agent at a view, on a local port until SIGTERM or SIGINT. With
/// `has_credentials` its requests get the credentials of this command, so the address has a code
/// that is valid once.
pub(super) fn show(
    agent: &Remote,
    has_credentials: bool,
    view: &str,
    no_open: bool,
) -> anyhow::Result<ExitCode> {
    let one_time = has_credentials.then(|| OneTime::new(true)).transpose();
    let one_time = one_time.context("cannot make a token")?;
    agent.block_on(async {
        let stop = Stop::prepare()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr().context("cannot listen")?;
        let code = one_time.as_ref().and_then(OneTime::code);
        let url = url(address, code.as_deref(), view);
        let code = print(&format!("{url}\n"))?;
        if !no_open {
            open_browser(&url);
        }
        let page = Relay {
            agent: agent.clone(),
            one_time,
        };
        relay(listener, page, stop.while_serving()).await;
        Ok(code)
    })
}

/// The code is in the fragment, which browsers do not send.
fn url(address: SocketAddr, code: Option<&str>, view: &str) -> String {
    match code {
        None => format!("http://{address}/{view}"),
        Some(code) => format!("http://{address}/#/login?code={code}&to={}", encoded(view)),
    }
}

/// A text in the fragment of an address.
pub(super) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a String cannot fail");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn address_has_view_and_code_in_its_fragment() {
        let address = "127.0.0.1:1".parse().expect("an address");
        let view = "#/vm/a%20b";
        assert_eq!(url(address, None, view), "http://127.0.0.1:1/#/vm/a%20b");
        let url = url(address, Some("abc"), view);
        let expected = "http://127.0.0.1:1/#/login?code=abc&to=%23%2Fvm%2Fa%2520b";
        assert_eq!(url, expected);
    }
}
