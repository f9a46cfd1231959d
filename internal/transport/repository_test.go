package transport_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

func secretOf(pairs ...string) source.Secret {
	s := source.Secret{Data: map[string][]byte{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Data[pairs[i]] = []byte(pairs[i+1])
	}
	return s
}

func TestRepositoryAuthWantsBoth(t *testing.T) {
	for _, c := range []struct {
		secret source.Secret
		user   string
		says   string
	}{
		{secretOf(), "", ""},
		{secretOf("username", "u", "password", "p"), "u", ""},
		{secretOf("username", "u"), "", "key password is missing"},
		{secretOf("username", "u", "password", ""), "", "key password is missing"},
		{secretOf("password", "cAnArY"), "", "key username is missing"},
		{secretOf("username", "u:v", "password", "cAnArY"), "", "colon"},
	} {
		a, err := transport.RepositoryAuth("default/s", c.secret)
		switch {
		case c.says == "" && (err != nil || a.Username != c.user):
			t.Errorf("%v: %+v, %v", c.secret, a, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "cAnArY")):
			t.Errorf("%v: %v; want %q", c.secret, err, c.says)
		}
	}
}

func TestRepositoryTLSKnowsDeprecatedKeysOnly(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("user")
	c, deprecated, err := transport.RepositoryTLS("default/s", secretOf("caFile", string(ca.PEM()), "certFile", string(cert), "keyFile", string(key), "ca.crt", "ignored"))
	if err != nil || c == nil || len(c.Certificates) != 1 || !slices.Equal(deprecated, []string{"caFile", "certFile", "keyFile"}) {
		t.Errorf("%+v %v %v", c, deprecated, err)
	}
	c, deprecated, err = transport.RepositoryTLS("default/s", secretOf("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
	if err != nil || c != nil || deprecated != nil {
		t.Errorf("%+v %v %v", c, deprecated, err)
	}
	if _, _, err = transport.RepositoryTLS("default/s", secretOf("certFile", string(cert))); err == nil || !strings.Contains(err.Error(), "keyFile is missing") {
		t.Error(err)
	}
}

func TestUserAuthOrRegistries(t *testing.T) {
	for _, c := range []struct {
		secret source.Secret
		user   string
		says   string
	}{
		{secretOf("username", "u", "password", "p"), "u", ""},
		{secretOf(".dockerconfigjson", "{}", "username", "u", "password", "p"), "", ""},
		{secretOf(".dockercfg", "{}"), "", ""},
		{secretOf(), "", "key .dockerconfigjson is missing, and so are username"},
		{secretOf("username", "u"), "", "key password is missing"},
		{secretOf("username", "u", "password", "cAnArY\n"), "", "line break"},
	} {
		a, ok, err := transport.UserAuth("default/s", c.secret)
		switch {
		case c.says == "" && (err != nil || a.Username != c.user || ok != (c.user != "")):
			t.Errorf("%v: %+v, %v, %v", c.secret, a, ok, err)
		case c.says != "" && (err == nil || ok || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "cAnArY")):
			t.Errorf("%v: %v; want %q", c.secret, err, c.says)
		}
	}
}
