//! Arguments for the connection to another agent.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(next_help_heading = "Options for --from URL")]
pub(crate) struct ConnectArgs {
    /// File with the bearer token for the agent
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// User of the agent's web configuration
    #[arg(
        long,
        value_name = "NAME",
        requires = "password_file",
        conflicts_with = "token_file"
    )]
    pub(crate) user: Option<String>,
    /// File with the user's password in its first line
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
    /// CA certificates for the agent's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Client certificate for the agent, in PEM
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub(crate) client_key: Option<PathBuf>,
}

impl ConnectArgs {
    /// Whether requests to the agent get credentials.
    pub(crate) fn has_credentials(&self) -> bool {
        let files = [
            &self.token_file,
            &self.password_file,
            &self.client_certificate,
        ];
        files.into_iter().any(Option::is_some)
    }

    /// Whether a browser can connect as well as this command.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_credentials() && self.ca_file.is_none()
    }
}
