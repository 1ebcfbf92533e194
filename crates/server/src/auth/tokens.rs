//! Bearer tokens of operators, for HTTP: a file with one a line, read again when it changes. Owns
//! which files are refused, and the comparison, whose time says nothing about a token.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_tls::FileStamps;
use parking_lot::Mutex;
use subtle::{Choice, ConstantTimeEq};

use crate::auth::secret_file;

/// Bytes of a token: too many to guess, and few enough for the head of a request.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=1024;

/// The tokens of one file.
pub(crate) struct Tokens {
    path: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    tokens: Vec<String>,
    stamps: FileStamps,
}

impl fmt::Debug for Tokens {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// The file, what is wrong with it, and the remedy, in one line.
    pub(crate) fn load(path: &Path) -> Result<Arc<Self>, String> {
        // Taken first: a file that changes while it is read is read again.
        let stamps = FileStamps::of_paths(&[path]);
        Ok(Arc::new(Self {
            path: path.to_owned(),
            current: Mutex::new(Current {
                tokens: read(path)?,
                stamps,
            }),
        }))
    }

    /// Whether this is one of the tokens. Reads the file again if it has changed; one that is wrong
    /// then changes nothing, and is reported once.
    pub(crate) fn admits(&self, presented: &[u8]) -> bool {
        let stamps = FileStamps::of_paths(&[&self.path]);
        let mut current = self.current.lock();
        if current.stamps != stamps {
            current.stamps = stamps;
            match read(&self.path) {
                Ok(tokens) => {
                    current.tokens = tokens;
                    tracing::info!("the changed tokens for HTTP are used");
                }
                Err(error) => {
                    tracing::warn!(
                        "the changed tokens for HTTP are not used, the old ones stay in use: {error}"
                    );
                }
            }
        }
        let known = current.tokens.iter();
        let known = known.fold(Choice::from(0), |known, token| {
            known | token.as_bytes().ct_eq(presented)
        });
        known.into()
    }
}

fn read(path: &Path) -> Result<Vec<String>, String> {
    let text = secret_file::read(path)?;
    // What is wrong with a line is said without the line.
    parse(&text).map_err(|what| format!("{}{what}", path.display()))
}

fn parse(text: &str) -> Result<Vec<String>, String> {
    const REMEDY: &str = "make one with: openssl rand -hex 32";
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !TOKEN_BYTES.contains(&line.len()) || !line.bytes().all(is_plain) {
            return Err(format!(
                ":{number}: a token has 16 to 1024 letters, digits and -._~+/=; {REMEDY}"
            ));
        }
        tokens.push(line.to_owned());
    }
    if tokens.is_empty() {
        return Err(format!(" has no token; {REMEDY}"));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_are_a_line_each_and_a_complaint_quotes_none() {
        let tokens = parse("# ours\n\n0123456789abcdef\r\nABCDEF+/=-._~0123456\n").unwrap();
        assert_eq!(tokens, ["0123456789abcdef", "ABCDEF+/=-._~0123456"]);
        for (text, complaint) in [
            ("", " has no token"),
            ("# 0123456789abcdef", " has no token"),
            ("\nsecret", ":2: a token has"),
            ("secret 0123456789abcdef", ":1: a token has"),
            ("secret\u{e4}0123456789abcdef", ":1: a token has"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(complaint), "{text}: {error}");
            assert!(error.contains("openssl rand") && !error.contains("secret"));
        }
        assert!(parse(&"a".repeat(1025)).is_err());
    }

    #[test]
    fn a18_a_token_counts_whole_and_the_file_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let put = |name: &str, text: &str| {
            let file = folder.path().join(name);
            write(&file, text).unwrap();
            set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            std::fs::rename(file, &path).unwrap();
        };
        assert!(Tokens::load(&path).is_err());
        put("1", "0123456789abcdef\nfedcba9876543210\n");
        let tokens = Tokens::load(&path).unwrap();
        for known in ["0123456789abcdef", "fedcba9876543210"] {
            assert!(tokens.admits(known.as_bytes()));
        }
        for unknown in [
            "",
            "0123456789abcde",
            "0123456789abcdef0",
            "0123456789abcdeF",
        ] {
            assert!(!tokens.admits(unknown.as_bytes()), "{unknown}");
        }
        put("2", "0000000000000000\n");
        assert!(!tokens.admits(b"0123456789abcdef") && tokens.admits(b"0000000000000000"));
        // A file that is wrong changes nothing.
        put("3", "short\n");
        assert!(tokens.admits(b"0000000000000000") && !tokens.admits(b"short"));
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(Tokens::load(&path).unwrap_err().contains("chmod 600"));
        assert!(!format!("{tokens:?}").contains("0000"));
    }
}
