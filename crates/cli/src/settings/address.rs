//! Hosts and ports as a zoo.cfg writes them, and as the setting `listen` has them.

/// Every address, of IPv6 and IPv4: where ZooKeeper listens if the file names no address.
pub(super) const ANY: &str = "*";

/// An IPv6 address stands alone in a zoo.cfg, or already in the brackets that it needs before a
/// port. To Java, no address and every address of IPv4 are the same: every address, of IPv6 too.
pub(super) fn with_port(address: &str, port: &str) -> String {
    if matches!(address, "0.0.0.0" | "::" | "[::]") {
        format!("{ANY}:{port}")
    } else if address.contains(':') && !address.starts_with('[') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

/// A port's number.
pub(super) fn port(value: &str) -> Result<String, String> {
    match value.parse::<u16>() {
        Ok(port) => Ok(port.to_string()),
        Err(_) => Err(format!("{value} is not a port; give a number up to 65535")),
    }
}
