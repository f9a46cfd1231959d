package source

import (
	"context"
	"strings"
)

// EnvPrefix begins the names of the variables that [EnvSecrets] reads.
const EnvPrefix = "HEADGATE_SECRET_"

// envKeys are the keys that are looked for in the environment, which cannot
// be listed: those of the specification and of reference A9 to A14.
var envKeys = []string{
	"username", "password", "bearerToken", // http, tokens
	"identity", "identity.pub", "known_hosts", // ssh
	"ca.crt", "tls.crt", "tls.key", "caFile", "certFile", "keyFile", // TLS
	"address",                                                                                                         // proxy
	"githubAppID", "githubAppInstallationID", "githubAppInstallationOwner", "githubAppPrivateKey", "githubAppBaseURL", // GitHub
	"accesskey", "secretkey", "serviceaccount", // buckets
	"token", "roleArn", // token services of buckets
	"tenantId", "clientId", "clientSecret", "clientCertificate", "clientCertificatePassword",
	"clientCertificateSendChain", "accountKey", "sasKey", "authorityHost", // Azure
	".dockerconfigjson",                                   // registries
	"cosign.pub", "trusted_root.json", "trustpolicy.json", // signatures
}

// EnvSecrets returns the secrets in environment variables, read through
// lookup, for example [os.LookupEnv]. The value of a key is in
//
//	HEADGATE_SECRET_<NAME>_<KEY>
//
// whatever the namespace, NAME and KEY in upper case with every run of other
// characters than letters and digits replaced by one "_" and none at the ends:
// password of git-auth is HEADGATE_SECRET_GIT_AUTH_PASSWORD, .dockerconfigjson
// of regcred is HEADGATE_SECRET_REGCRED_DOCKERCONFIGJSON.
//
// The environment cannot be searched, so the keys that headgate knows are
// tried. HEADGATE_SECRET_<NAME>_KEYS names further ones, separated by commas:
// "alice.asc,bob.sshpub". An empty variable counts as none. There are no
// service accounts.
func EnvSecrets(lookup func(string) (string, bool)) Secrets { return envSecrets(lookup) }

type envSecrets func(string) (string, bool)

// Secret implements [Secrets].
func (e envSecrets) Secret(_ context.Context, namespace, name string) (Secret, error) {
	prefix := EnvPrefix + envName(name) + "_"
	keys := envKeys
	if more, found := e(prefix + "KEYS"); found {
		keys = append(strings.Split(more, ","), keys...)
	}
	data := make(map[string][]byte)
	for _, key := range keys {
		key = strings.TrimSpace(key)
		if value, _ := e(prefix + envName(key)); value != "" && key != "" {
			data[key] = []byte(value)
		}
	}
	if len(data) == 0 {
		return Secret{}, missingSecret(namespace, name, "no variable "+prefix+"<KEY>")
	}
	return Secret{Type: typeOf(data), Data: data}, nil
}

// PullSecrets implements [Secrets].
func (e envSecrets) PullSecrets(_ context.Context, namespace, serviceAccount string) ([]Secret, error) {
	return nil, missingAccount(namespace, serviceAccount, "the environment has none")
}

// envName returns a name as it is part of the name of a variable.
func envName(name string) string {
	parts := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	return strings.Join(parts, "_")
}
