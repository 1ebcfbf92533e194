//! `baton backup`: the state of a running server becomes a file. What the bytes mean is
//! `baton_wal`'s and `baton_tree`'s; this owns where the file goes and when it counts.

use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_server::{Progress, Unit, restoring};
use baton_wal::{BackupWriter, DirStorage, SnapshotInfo, WalError};
use baton_zkdata::Tree;

use crate::access::Access;
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::progress::ShownProgress;
use crate::output::record::record;
use crate::servers::http_port::{self, HTTP_PORT, HttpPort};
use crate::servers::lookup::{self, Found};
use crate::servers::machine::Machine;
use crate::servers::probe;
use crate::unfinished::{heed_stops, removed_when_stopped};

/// The path at a server's HTTP port.
const TARGET: &str = "/commands/backup";

/// Make a backup of a running server.
///
/// The backup is one file: the whole state of the server at one moment, with every write that it
/// had acknowledged before the request. Writes continue meanwhile. The file gets its name only
/// after it was read back, its state was rebuilt, and it was synced to disk. Only this user may
/// read it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton backup --http 127.0.0.1:8080 --http-token-file token /var/backups/baton/
  baton backup --http zk1:8443 --tls-ca ca.pem --auth-file super today.backup
  baton restore --verify today.backup

Any server of an ensemble will do. It sends the backup at its HTTP port (setting
http or https), to a client that may also change everything there: with a token
of http_token_file, as the superuser, or as a user to whom the ACL of / gives
all permissions. A backup contains data that ACLs protect and the passwords of
sessions: protect it like the server's data folder.
Exit codes: 0 done   1 refused by the server   2 usage
            125 no answer, an incomplete answer, or the file cannot be written")]
pub(crate) struct Args {
    /// The file to make, or a folder for a file named by the time. A name that ends with a slash is
    /// a folder, which is made if it is missing.
    #[arg(value_name = "FILE", default_value = ".")]
    target: PathBuf,
    /// The HTTP port of the server [default: port 8080 of the first server]. Uses TLS where the
    /// connections to the servers do, unless it begins with http://.
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Show the first token of this file at the HTTP port, in place of the credentials. Other users
    /// must not be able to read it.
    #[arg(
        long,
        value_name = "FILE",
        env = "BATON_HTTP_TOKEN_FILE",
        hide_env_values = true
    )]
    http_token_file: Option<PathBuf>,
    /// Time that the server may take until it begins to send.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "10m")]
    wait: Duration,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let token = args.http_token_file.as_deref();
    let token = token.map(http_port::first_token).transpose()?;
    let (found, files) = lookup::servers(&context.globals, &Machine::this()?)?;
    let access = files.read()?;
    let http = match (&args.http, &found) {
        (Some(http), _) => http.clone(),
        (None, Found::Named(named)) => default_port(&named.list)?,
        (None, Found::Local { .. }) => {
            return Err(Failure::usage(
                "a backup is taken at the HTTP port of a server: name it with --http HOST:PORT; a local server has none, \
                 unless it was started with baton serve --http",
            ));
        }
    };
    let (folder, name) = place_of(&args.target)?;
    let shown = folder.join(&name);
    // A link would lead the rename elsewhere than a reader of the name expects.
    if shown.symlink_metadata().is_ok() {
        let file = shown.display().to_string();
        return Err(Failure::baton(WalError::BackupExists { file }.to_string()));
    }
    heed_stops(&context.output)?;
    let progress = Arc::new(Progress::default());
    let shown_progress = ShownProgress::on_status(&context.output, &progress);
    let unfinished = folder.join(BackupWriter::unfinished_name(&name));
    let taking = || {
        take(
            args,
            context,
            &access,
            token.as_deref(),
            &http,
            (&folder, &name),
            &progress,
        )
    };
    let TakenBackup {
        info,
        tree,
        cluster,
    } = removed_when_stopped(&context.output, &unfinished, taking)??;
    drop(shown_progress);
    let (file, bytes) = (shown.display().to_string(), info.file_bytes);
    let (znodes, sessions) = (tree.node_count(), tree.sessions().len());
    let zxid = format!("0x{:x}", info.meta.zxid);
    let taken = restoring::timestamp(info.meta.time_ms);
    let cluster = format!("{cluster:016x}");
    let text = format!(
        "{file}: {znodes} znodes, {sessions} sessions, up to zxid {zxid}, taken {taken}; {bytes} bytes, read back and rebuilt"
    );
    let report = record! { file, bytes, znodes, sessions, zxid, taken, cluster };
    context.output.result(&report, text);
    Ok(exit::OK)
}

/// A backup that was taken, and what is in it.
struct TakenBackup {
    info: SnapshotInfo,
    tree: Tree,
    cluster: u64,
}

fn take(
    args: &Args,
    context: &Context,
    access: &Access,
    token: Option<&str>,
    http: &str,
    (folder, name): (&Path, &str),
    progress: &Progress,
) -> Result<TakenBackup, Failure> {
    let port = HttpPort::parse(http, access.tls())?;
    let ports = std::slice::from_ref(&port);
    let authorization = http_port::authorization(token, access.digest(), ports);
    let storage = DirStorage::open(folder).map_err(|error| {
        Failure::baton(format!(
            "cannot write to {}: {error}; name a folder that is there",
            folder.display()
        ))
    })?;
    let failed = |error: WalError| Failure::baton(error.to_string());
    // Before the server is asked: a file that cannot be made costs it nothing.
    let mut writer = BackupWriter::begin(Arc::new(storage), name).map_err(failed)?;
    progress.begin("waiting for the server", Unit::Bytes, 0);
    let mut is_begun = false;
    let write = |piece: &[u8], length: u64| {
        if !std::mem::replace(&mut is_begun, true) {
            progress.begin("receiving the backup", Unit::Bytes, length);
        }
        progress.add(piece.len());
        writer.write(piece).map_err(failed)
    };
    let authorization = authorization.as_deref();
    let download = http_port::download(&port, TARGET, authorization, args.wait, write);
    context.block_on(download)??;
    let written = writer.written();
    let checked = writer.finish(|reader| {
        progress.begin("reading it back", Unit::Bytes, written);
        let tree = restoring::rebuild(reader, progress)?;
        Ok::<_, restoring::UnreadableBackup>((tree, reader.cluster_id()))
    });
    let (info, (tree, cluster)) = checked.map_err(|error| {
        Failure::baton(format!(
            "what {port} has sent is not a whole backup: {error}"
        ))
    })?;
    Ok(TakenBackup {
        info,
        tree,
        cluster,
    })
}

/// Port 8080 of the first server of a list.
fn default_port(list: &str) -> Result<String, Failure> {
    let addresses = probe::addresses(list);
    let host = addresses.first().and_then(|first| first.rsplit_once(':'));
    host.map(|(host, _)| format!("{host}:{HTTP_PORT}")).ok_or_else(|| {
        Failure::usage(format!(
            "a backup is taken at the HTTP port of a server, and {list} has none: name it with --http HOST:PORT"
        ))
    })
}

/// The folder and the name of the file to make.
fn place_of(target: &Path) -> Result<(PathBuf, String), Failure> {
    let is_named_folder = target.as_os_str().as_bytes().ends_with(b"/");
    if is_named_folder && !target.exists() {
        let made = DirBuilder::new().mode(0o700).create(target);
        made.map_err(|error| {
            let shown = target.display();
            Failure::baton(format!(
                "cannot make the folder {shown}: {error}; name a folder that is there"
            ))
        })?;
    }
    if is_named_folder || target.is_dir() {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = since_1970.map_or(0, |time| time.as_millis());
        let now = restoring::timestamp(i64::try_from(millis).unwrap_or(i64::MAX));
        return Ok((target.to_owned(), file_name(&now)));
    }
    let name = target.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        let shown = target.display();
        Failure::usage(format!(
            "{shown} is not the name of a file; name a file, or a folder that is there"
        ))
    })?;
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Ok((folder.to_owned(), name.to_owned()))
}

/// The name of a backup of this moment: names sort as their times do.
fn file_name(timestamp: &str) -> String {
    let plain = timestamp
        .chars()
        .filter(|char| !matches!(char, '-' | ':' | '.'));
    format!("baton-{}.backup", plain.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_in_a_folder_is_named_by_its_time() {
        let name = file_name("2026-11-21T16:01:54.007Z");
        assert_eq!(name, "baton-20261121T160154007Z.backup");
        let folder = tempfile::tempdir().unwrap();
        let (at, name) = place_of(folder.path()).unwrap();
        assert_eq!(at, folder.path());
        assert!(name.starts_with("baton-20") && name.ends_with("Z.backup"));
        let missing = folder.path().join("missing/");
        let (at, name) = place_of(&missing).unwrap();
        assert!(at == missing && missing.is_dir());
        assert!(name.starts_with("baton-20"), "{name}");
        let (at, name) = place_of(Path::new("x.backup")).unwrap();
        assert_eq!((at.as_path(), name.as_str()), (Path::new("."), "x.backup"));
        assert!(place_of(&folder.path().join("no/such/")).is_err());
        let refused = place_of(Path::new("missing/..")).unwrap_err();
        assert!(refused.text.contains("not the name of a file"));
    }

    #[test]
    fn the_first_server_of_a_list_is_asked() {
        assert_eq!(default_port("zk1:2181,zk2:2181").unwrap(), "zk1:8080");
        assert_eq!(default_port("tls://[::1]:2281/app").unwrap(), "[::1]:8080");
        let refused = default_port("unix:/run/baton.sock").unwrap_err();
        assert!(refused.text.contains("--http"), "{refused}");
    }
}
