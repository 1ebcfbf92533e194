//! The settings of the audit record.

use baton_server::{AuditFormat, AuditTo};

use super::{ZOO, load};

#[test]
fn the_audit_record_of_a_zoo_cfg_goes_to_the_log() {
    for (line, to) in [
        ("", AuditTo::Off),
        ("audit.enable=true\n", AuditTo::Log),
        ("audit.enable=TRUE\n", AuditTo::Log),
        ("audit.enable=false\n", AuditTo::Off),
        ("audit.enable=yes\n", AuditTo::Off),
        ("audit.enable=true\naudit.enable=false\n", AuditTo::Off),
    ] {
        let settings = load("zoo.cfg", &format!("{ZOO}{line}"), &[]).unwrap();
        assert_eq!(settings.target().options.audit.to, to, "{line}");
        assert_eq!(settings.warning, None, "{line}");
    }
    // A flag says where else, and what has no meaning here is named.
    let text = format!("{ZOO}audit.enable=true\naudit.impl.class=mine\n");
    let settings = load("zoo.cfg", &text, &["--audit=/var/log/baton/audit.log"]).unwrap();
    let file = AuditTo::File("/var/log/baton/audit.log".into());
    assert_eq!(settings.target().options.audit.to, file);
    let warning = settings.warning.as_deref().unwrap();
    assert!(
        warning.contains("audit.impl.class (the audit record"),
        "{warning}"
    );
}

#[test]
fn the_audit_record_has_a_place_a_form_and_a_size() {
    let text = "listen = \"127.0.0.1:1\"\naudit = \"./audit.log\"\naudit_format = \"json\"\n\
                audit_max_bytes = 65536\naudit_files = 3\n";
    let one = load("baton.toml", text, &[]).unwrap();
    let two = load("baton.toml", &one.to_toml(), &[]).unwrap();
    for settings in [one, two] {
        let audit = &settings.target().options.audit;
        assert_eq!(audit.to, AuditTo::File("./audit.log".into()));
        assert_eq!(audit.format, AuditFormat::Json);
        assert_eq!((audit.max_bytes, audit.files), (65_536, 3));
    }
    for (line, complaint) in [
        (
            "audit = \"on\"",
            "baton.toml:1 audit: 'on' does not say where the audit record goes; write off, log or a file",
        ),
        ("audit = true", "'true' does not say where"),
        (
            "audit = [\"a\", \"b\"]",
            "write \"off\", \"log\" or a file in quotes",
        ),
        ("audit = \"\"", "write off, log or a file"),
        (
            "audit = \"/\"",
            "baton.toml:1 audit) must be off, log or the path of a file",
        ),
        (
            "audit_format = \"xml\"",
            "'xml' is not a format of the audit record; write text or json",
        ),
        (
            "audit_max_bytes = 65535",
            "baton.toml:1 audit_max_bytes) must be at least 65,536",
        ),
        ("audit_files = 0", "must lie between 1 and 1,000"),
        ("audit_files = 1001", "must lie between 1 and 1,000"),
    ] {
        let refused = load("baton.toml", line, &[]).unwrap_err();
        assert!(refused.contains(complaint), "{line}: {refused}");
    }
}
