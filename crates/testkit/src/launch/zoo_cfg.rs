//! The zoo.cfg of a server, which both kinds of server read.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{LaunchError, ServerOptions, TlsOptions};

/// Writes a zoo.cfg for a server with this folder; returns its path.
pub(super) fn zoo_cfg(
    folder: &Path,
    addr: SocketAddr,
    secure_addr: Option<SocketAddr>,
    options: &ServerOptions,
    more: &str,
) -> Result<PathBuf, LaunchError> {
    let secure = match (&options.tls, secure_addr) {
        (Some(tls), Some(addr)) => secure_lines(tls, addr, folder)?,
        _ => String::new(),
    };
    let file = folder.join("zoo.cfg");
    let text = format!(
        "tickTime={}\nminSessionTimeout={}\nmaxSessionTimeout={}\ndataDir={}\nclientPort={}\n\
         clientPortAddress={}\nmaxClientCnxns=0\n4lw.commands.whitelist=*\nadmin.enableServer=false\n{more}{secure}",
        options.tick.as_millis(),
        options.min_session_timeout.as_millis(),
        options.max_session_timeout.as_millis(),
        folder.join("data").display(),
        addr.port(),
        addr.ip(),
    );
    fs::write(&file, text).map_err(LaunchError::io("cannot write zoo.cfg"))?;
    Ok(file)
}

/// The lines of a zoo.cfg for TLS at this address. ZooKeeper wants its certificate and its key in
/// one file, which is written into `dir`.
fn secure_lines(tls: &TlsOptions, addr: SocketAddr, dir: &Path) -> Result<String, LaunchError> {
    let store = dir.join("server.pem");
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(LaunchError::io(format!("cannot read {}", path.display())))
    };
    let both = read(&tls.server.certificate)? + &read(&tls.server.key)?;
    fs::write(&store, both)
        .and_then(|()| fs::set_permissions(&store, Permissions::from_mode(0o600)))
        .map_err(LaunchError::io("cannot write server.pem"))?;
    Ok(format!(
        "secureClientPort={}\nsecureClientPortAddress={}\n\
         serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
         ssl.clientAuth={}\n\
         authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n",
        addr.port(),
        addr.ip(),
        store.display(),
        tls.authorities.display(),
        tls.client_auth,
    ))
}
