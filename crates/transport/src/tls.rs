//! Whom connections over TLS trust.

pub use rustls;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;
use weir_core::{Kind, Param};

/// Of targets that speak it.
pub const AUTHORITIES: Param =
    Param::new("ca", Kind::Text, "File of certificates (PEM) that are trusted beside the machine's own.");

/// A client that trusts the machine's certificates, and those of a file.
///
/// Errors: the file cannot be read, or has something else in it.
pub fn trust(authorities: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = authorities {
        let in_file = |error: &dyn Display| io::Error::other(format!("{}: {error}", file.display()));
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| in_file(&error))? {
            let certificate = certificate.map_err(|error| in_file(&error))?;
            roots.add(certificate).map_err(|error| in_file(&error))?;
        }
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}
