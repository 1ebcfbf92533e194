//! Questions to the servers about themselves, by four-letter words.

use std::collections::BTreeMap;
use std::pin::Pin;

use baton_client::{Client, ClientTls, EnsembleConfig, Session};
use baton_console::{Answers, Words};

use crate::servers::probe;

/// Asks each server of the ensemble, at the addresses that are known of it.
pub(crate) struct ServerWords {
    client: Client,
    /// The servers that the user has named.
    known: Vec<String>,
    tls: Option<ClientTls>,
}

impl ServerWords {
    /// Asks the servers that `client` uses, whom the user has named like this.
    pub(crate) fn new(client: &Client, named: &str, tls: Option<&ClientTls>) -> Self {
        Self {
            client: client.clone(),
            known: match probe::addresses(named) {
                none if none.is_empty() => vec![named.to_owned()],
                known => known,
            },
            tls: tls.cloned(),
        }
    }

    async fn addresses(&self) -> Vec<String> {
        let config = match self.client.session().await {
            Ok(session) => session.read_latest("/", Session::ensemble_config).await,
            Err(_) => return self.known.clone(),
        };
        // A server that stands alone need not have the list, and not everybody may read it.
        let config: EnsembleConfig = config.unwrap_or_default();
        let found = probe::client_addresses(&config, &self.known, self.tls.as_ref()).await;
        let found: Vec<_> = found.into_iter().flatten().collect();
        if found.is_empty() {
            self.known.clone()
        } else {
            found
        }
    }
}

impl Words for ServerWords {
    fn ask<'a>(
        &'a self,
        words: &'a [&'a str],
    ) -> Pin<Box<dyn Future<Output = Vec<Answers>> + Send + 'a>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for address in self.addresses().await {
                let mut answers = BTreeMap::new();
                let mut failure = None;
                for word in words {
                    match probe::ask(&address, word, self.tls.as_ref()).await {
                        Ok(answer) => {
                            answers.insert((*word).to_owned(), answer);
                        }
                        // What does not answer one word answers none.
                        Err(why) => {
                            failure = Some(why);
                            break;
                        }
                    }
                }
                let failure = failure.filter(|_| answers.is_empty());
                all.push(Answers::new(&address, answers, failure));
            }
            all
        })
    }
}
