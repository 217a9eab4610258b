//! `kubectl virtlens ui`: the page for browsers, with the agent of a node behind it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::net::TcpListener;
use virtlens_kube::NodeAgent;

use super::args::UiArgs;
use super::target::Target;
use crate::cli::stdout::print;
use crate::cli::stop::Stop;
use crate::cli::ui::open_browser;
use crate::http::{OneTime, Relay, relay};
use crate::term::printable;
use crate::views::pick;

/// Serves the page on a local port until SIGTERM or SIGINT. With `has_credentials` its requests
/// get the credentials of this command, so the address has a code that is valid once.
pub(super) fn show(
    target: &Target,
    args: &UiArgs,
    has_credentials: bool,
) -> anyhow::Result<ExitCode> {
    target.report_missing();
    let agent = the_one(target)?;
    let view = view_of(target, agent);
    let one_time = has_credentials.then(|| OneTime::new(true)).transpose();
    let one_time = one_time.context("cannot make a token")?;
    agent.remote.block_on(async {
        let stop = Stop::prepare()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr().context("cannot listen")?;
        let code = one_time.as_ref().and_then(OneTime::code);
        let url = url(address, code.as_deref(), &view);
        let code = print(&format!("{url}\n"))?;
        if !args.no_open {
            open_browser(&url);
        }
        let page = Relay {
            agent: agent.remote.clone(),
            one_time,
        };
        relay(listener, page, stop.while_serving()).await;
        Ok(code)
    })
}

/// The agent of the only node.
fn the_one(target: &Target) -> anyhow::Result<&NodeAgent> {
    match &target.agents[..] {
        [agent] => Ok(agent),
        agents => {
            let nodes: Vec<&str> = agents.iter().map(|agent| &*agent.node).collect();
            let nodes = printable(&nodes.join(", "));
            anyhow::bail!(
                "the page shows one node; name a pod, or one of these with --node: {nodes}"
            )
        }
    }
}

/// The view of the page: the pod's VM; the list with a filter if the agent does not show the VM to
/// this command, because the page asks for credentials.
fn view_of(target: &Target, agent: &NodeAgent) -> String {
    let Some(pod) = target.pod.as_deref() else {
        let namespace = target.namespace.as_deref();
        let search = namespace.map(|namespace| format!("?search={}", encoded(namespace)));
        return format!("#/node{}", search.unwrap_or_default());
    };
    let reading = agent.remote.snapshot(Some(pod)).ok();
    let found = reading.and_then(|reading| {
        let mut vms = reading.vms.into_iter().filter(|vm| vm.running);
        vms.find(|vm| pick::is_called(vm, pod))
    });
    match found {
        Some(vm) => format!("#/vm/{}", encoded(&vm.vm)),
        None => format!("#/node?search={}", encoded(pod)),
    }
}

/// The code is in the fragment, which browsers do not send.
fn url(address: SocketAddr, code: Option<&str>, view: &str) -> String {
    match code {
        None => format!("http://{address}/{view}"),
        Some(code) => format!("http://{address}/#/login?code={code}&to={}", encoded(view)),
    }
}

/// A text in the fragment of an address.
fn encoded(text: &str) -> String {
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
