package oci_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// dockerconfig returns what docker login writes for a host.
func dockerconfig(host, user, password string) string {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	out, _ := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"auth": auth}}})
	return string(out)
}

func TestAccess(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("ann")
	for name, row := range map[string]struct {
		config testenv.RegistryConfig
		access oci.Access
		refuse bool
	}{
		"nobody":          {testenv.RegistryConfig{}, oci.Access{}, false},
		"basic":           {testenv.RegistryConfig{Username: "ann", Password: "open sesame"}, oci.Access{Secret: ref("reg")}, false},
		"basic, account":  {testenv.RegistryConfig{Username: "ann", Password: "open sesame"}, oci.Access{ServiceAccount: "default"}, false},
		"basic, nothing":  {testenv.RegistryConfig{Username: "ann", Password: "open sesame"}, oci.Access{}, true},
		"basic, wrong":    {testenv.RegistryConfig{Username: "ann", Password: "other"}, oci.Access{Secret: ref("reg")}, true},
		"bearer":          {testenv.RegistryConfig{Username: "ann", Password: "open sesame", Bearer: &testenv.Bearer{}}, oci.Access{Secret: ref("reg")}, false},
		"bearer, nobody":  {testenv.RegistryConfig{Bearer: &testenv.Bearer{Anonymous: true}}, oci.Access{}, false},
		"bearer, nothing": {testenv.RegistryConfig{Bearer: &testenv.Bearer{}}, oci.Access{}, true},
		"bearer, wrong":   {testenv.RegistryConfig{Username: "ann", Password: "other", Bearer: &testenv.Bearer{}}, oci.Access{Secret: ref("reg")}, true},
		"TLS":             {testenv.RegistryConfig{CA: ca}, oci.Access{Cert: ref("ca")}, false},
		"mutual TLS":      {testenv.RegistryConfig{CA: ca, Mutual: true, Username: "ann", Password: "open sesame", Bearer: &testenv.Bearer{}}, oci.Access{Cert: ref("tls"), Secret: ref("reg")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, row.config)
			want := g.Push("team/app", "v1", layer("x"))
			config := dockerconfig(g.Host, "ann", "open sesame")
			env := source.Env{Secrets: secrets{
				"reg": {".dockerconfigjson": config}, "account/default": {".dockerconfigjson": config},
				"ca":  {"ca.crt": string(ca.PEM())},
				"tls": {"ca.crt": string(ca.PEM()), "tls.crt": string(cert), "tls.key": string(key)},
			}}
			row.access.URL, row.access.Insecure = g.URL("team/app"), row.config.CA == nil
			r, _ := connect(t, row.access, env)
			d, err := r.Head(t.Context(), "v1")
			switch {
			case row.refuse && !errors.Is(err, fs.ErrPermission):
				t.Error(err)
			case !row.refuse && (err != nil || d.Digest != want.Digest):
				t.Error(d, err)
			}
			if row.refuse {
				t.Log(err)
			}
		})
	}
}
