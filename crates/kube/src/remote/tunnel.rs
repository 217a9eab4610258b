//! Connections to a port of a pod, through the API server and the pod's kubelet.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tower::Service;

/// Opens connections to a port of a pod. The API server asks for the verb `get` on
/// `pods/portforward`, and since 1.35 also for `create`
/// (`AuthorizePodWebsocketUpgradeCreatePermission`, `pkg/features/kube_features.go` of
/// Kubernetes).
#[derive(Clone)]
pub(crate) struct Tunnels {
    /// A client of the API server.
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) port: u16,
}

type Opening<T> = Pin<Box<dyn Future<Output = Result<T, kube::Error>> + Send>>;

impl Service<Uri> for Tunnels {
    type Response = TokioIo<Tunnel>;
    type Error = kube::Error;
    type Future = Opening<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let (pod, port) = (self.pod.clone(), self.port);
        Box::pin(async move {
            let mut forwarder = pods.portforward(&pod, &[port]).await?;
            let failure = forwarder.take_error(port).map(|failure| {
                let failure: Failure = Box::pin(failure);
                failure
            });
            let stream = forwarder.take_stream(port).ok_or_else(|| {
                kube::Error::Service("the API server forwards another port".into())
            })?;
            Ok(TokioIo::new(Tunnel { stream, failure }))
        })
    }
}

type Failure = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// A connection to a port of a pod.
pub(crate) struct Tunnel {
    stream: DuplexStream,
    /// The reason for the end of the connection that the kubelet reports.
    failure: Option<Failure>,
}

impl Connection for Tunnel {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() == before && buffer.remaining() > 0 && self.failure.is_some() {
            // The reason is known once the forwarder has ended. The end of the stream means that
            // the whole connection is closed, but the forwarder still waits for data to send.
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            let Some(failure) = &mut self.failure else {
                return Poll::Ready(Ok(()));
            };
            let reason = ready!(failure.as_mut().poll(cx));
            self.failure = None;
            if let Some(reason) = reason {
                return Poll::Ready(Err(io::Error::other(reason)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
