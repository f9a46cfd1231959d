package transport_test

import (
	"testing"

	"github.com/headgate-io/headgate/internal/transport"
)

func TestAzureKeys(t *testing.T) {
	read := func(keyValue ...string) (transport.Azure, error) {
		return transport.AzureKeys("default/blobs", secret(keyValue...))
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
