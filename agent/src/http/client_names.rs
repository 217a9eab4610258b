//! `client_allowed_sans`: restricts clients with valid certificates to certain names.

use std::net::IpAddr;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
};
use webpki::EndEntityCert;

/// A name in a certificate.
#[derive(Debug)]
pub(super) enum Name {
    /// IP address.
    Address(IpAddr),
    /// A DNS name or a URI.
    Text(String),
}

/// # Errors
///
/// If a name has a kind that is not searched for in certificates.
pub(super) fn parse_names(texts: &[String]) -> Result<Vec<Name>, String> {
    let names = texts.iter().map(|text| match text.parse() {
        Ok(address) => Ok(Name::Address(address)),
        Err(_) if text.contains('@') && !text.contains("://") => Err(format!(
            "client_allowed_sans: {text:?}: e-mail addresses are not supported; use a DNS name, \
             an IP address or a URI"
        )),
        Err(_) => Ok(Name::Text(text.clone())),
    });
    names.collect()
}

/// A verifier that also requires one of these names in the certificate, as an exact
/// match.
#[derive(Debug)]
pub(super) struct AllowedNames {
    authority: Arc<dyn ClientCertVerifier>,
    allowed: Vec<Name>,
}

impl AllowedNames {
    pub(super) fn new(authority: Arc<dyn ClientCertVerifier>, allowed: Vec<Name>) -> Self {
        Self { authority, allowed }
    }

    fn allows(&self, certificate: &EndEntityCert<'_>) -> bool {
        self.allowed.iter().any(|name| match name {
            Name::Address(address) => certificate
                .verify_is_valid_for_subject_name(&ServerName::IpAddress((*address).into()))
                .is_ok(),
            Name::Text(text) => certificate
                .valid_dns_names()
                .chain(certificate.valid_uri_names())
                .any(|has| has == text),
        })
    }
}

impl ClientCertVerifier for AllowedNames {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .authority
            .verify_client_cert(end_entity, intermediates, now)?;
        let certificate =
            EndEntityCert::try_from(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        if self.allows(&certificate) {
            Ok(verified)
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn client_auth_mandatory(&self) -> bool {
        self.authority.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}
