package source

import (
	"context"
	"fmt"
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
// "alice.asc,bob.sshpub". An empty variable counts as none; a secret whose
// variables are all empty, or of which there is but the one with KEYS, is an
// error that is no [fs.ErrNotExist]. There are no service accounts.
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
	var why error
	for i, key := range keys {
		key = strings.TrimSpace(key)
		if key == "" {
			continue
		}
		value, found := e(prefix + envName(key))
		switch {
		case value != "":
			data[key] = []byte(value)
		case why != nil:
		case found:
			why = fmt.Errorf("variable %s is empty: set it", prefix+envName(key))
		case i < len(keys)-len(envKeys):
			why = fmt.Errorf("variable %s names the key %s, but there is no variable %s", prefix+"KEYS", quote(key), prefix+envName(key))
		}
	}
	switch {
	case len(data) > 0:
		return Secret{Type: typeOf(data), Data: data}, nil
	case why != nil:
		return Secret{}, &defective{"secret " + namespace + "/" + name, why, true}
	}
	return Secret{}, missingSecret(namespace, name, "no variable "+prefix+"<KEY>")
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
