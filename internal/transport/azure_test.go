package transport_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

func TestAzureKeys(t *testing.T) {
	read := func(keyValue ...string) (transport.Azure, error) {
		s := source.Secret{Data: map[string][]byte{}}
		for i := 0; i < len(keyValue); i += 2 {
			s.Data[keyValue[i]] = []byte(keyValue[i+1])
		}
		return transport.AzureKeys("default/blobs", s)
	}
	z, err := read("tenantId", "t", "clientId", "c", "clientCertificate", "pem", "clientCertificatePassword", "p", "clientCertificateSendChain", "1", "authorityHost", "https://login.example/adfs", "accountKey", "a2V5")
	if err != nil || z.Application == nil || z.Application.Secret != "" || string(z.Application.Certificate) != "pem" || z.Application.Password != "p" || !z.Application.Chain ||
		z.Account != "" || z.Authority.String() != "https://login.example/adfs/" {
		t.Errorf("%+v, %v", z, err)
	}
	z, err = read("tenantId", "t", "clientId", "c", "clientSecret", "s", "clientCertificate", "pem")
	if err != nil || z.Application.Secret != "s" || z.Application.Certificate != nil {
		t.Errorf("%+v, %v", z, err)
	}
	z, err = read("clientId", "c", "accountKey", "a2V5", "clientSecret", "")
	if err != nil || z.Application != nil || z.Managed != "c" || z.Account != "" {
		t.Errorf("%+v, %v", z, err)
	}
	z, err = read("accountKey", "a2V5\n", "sasKey", "sig=x")
	if err != nil || z.Account != "a2V5" || z.SAS != "" {
		t.Errorf("%+v, %v", z, err)
	}
	z, err = read("sasKey", "?sv=1&sig=x")
	if err != nil || z.SAS != "sv=1&sig=x" {
		t.Errorf("%+v, %v", z, err)
	}
	if err := z.BadCertificate("it is none"); err.Error() != "secret default/blobs: key clientCertificate cannot be used: it is none" {
		t.Error(err)
	}
}

// FuzzAzureKeys checks that a Secret has one form or is refused without its values.
func FuzzAzureKeys(f *testing.F) {
	f.Add("t", "c", "s", "", "", "", "https://login.example/")
	f.Add("", "c", "", "", "", "", "")
	f.Add("", "", "", "", "a2V5", "", "")
	f.Add("", "", "", "", "", "?sv=1&sig=%2B", "")
	f.Add("t", "", "", "cert", "x", "sig", "http://x")
	f.Fuzz(func(t *testing.T, tenant, client, secret, cert, account, sas, authority string) {
		z, err := transport.AzureKeys("default/blobs", source.Secret{Data: map[string][]byte{"tenantId": []byte(tenant), "clientId": []byte(client), "clientSecret": canary(secret),
			"clientCertificate": canary(cert), "accountKey": canary(account), "sasKey": canary(sas), "authorityHost": []byte(authority)}})
		if err != nil {
			if strings.Contains(err.Error(), "cAnArY") {
				t.Errorf("a value shows: %v", err)
			}
			return
		}
		forms := 0
		for _, there := range []bool{z.Application != nil, z.Managed != "", z.Account != "", z.SAS != ""} {
			if there {
				forms++
			}
		}
		if forms != 1 || z.Authority != nil && (z.Authority.Scheme != "https" || z.Authority.Host == "") {
			t.Errorf("%+v", z)
		}
		if z.Application != nil && (z.Application.Client == "" || z.Application.Secret == "" && len(z.Application.Certificate) == 0) {
			t.Errorf("%+v", z.Application)
		}
	})
}

// canary begins what is there with a word that may not show.
func canary(value string) []byte {
	if value == "" {
		return nil
	}
	return []byte("cAnArY00" + value)
}
