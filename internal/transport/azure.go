package transport

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// The keys of a Secret for buckets with provider azure (reference A10).
const (
	keyTenant       = "tenantId"
	keyClient       = "clientId"
	keyClientSecret = "clientSecret"
	keyClientCert   = "clientCertificate"
	keyClientPass   = "clientCertificatePassword"
	keyClientChain  = "clientCertificateSendChain"
	keyAuthority    = "authorityHost"
	keyAccount      = "accountKey"
	keySAS          = "sasKey"
)

// An Azure holds the credentials of a Secret for a container. The first of the four
// credentials that the Secret has is set.
type Azure struct {
	Application *Application
	Managed     string // client id of a managed identity
	Account     string // key of the storage account, base64
	SAS         string // query of a shared access signature, without the question mark

	Authority *url.URL // issuer of tokens, nil for that of the public cloud

	name string
}

// An Application authenticates with a secret or a certificate.
type Application struct {
	Tenant, Client string
	Secret         string
	Certificate    []byte // and its key, PEM or PKCS #12; nil if there is a Secret
	Password       string // of Certificate
	Chain          bool   // send the whole chain of Certificate
}

// AzureKeys returns the credentials of a Secret for provider azure. A key that has no
// effect without others is an error if those are missing.
func AzureKeys(name string, s source.Secret) (Azure, error) {
	z, r := Azure{name: name}, newReader(name, s)
	v := map[string]string{}
	for _, key := range []string{keyTenant, keyClient, keyClientSecret, keyClientPass, keyClientChain, keyAuthority, keySAS} {
		text, err := r.Text([]string{key})
		if err != nil {
			return z, err
		}
		v[key] = text
	}
	v[keyClientCert] = string(s.Data[keyClientCert])
	v[keyAccount] = strings.TrimRight(string(s.Data[keyAccount]), "\r\n")
	if err := r.checkAzureKeys(v); err != nil {
		return z, err
	}
	var err error
	switch {
	case v[keyTenant] != "":
		z.Application = &Application{Tenant: v[keyTenant], Client: v[keyClient], Secret: v[keyClientSecret]}
		if z.Application.Secret == "" {
			z.Application.Certificate, z.Application.Password = []byte(v[keyClientCert]), v[keyClientPass]
			z.Application.Chain = v[keyClientChain] == "1" || v[keyClientChain] == "true"
		}
	case v[keyClient] != "":
		z.Managed = v[keyClient]
	case v[keyAccount] != "":
		z.Account, err = v[keyAccount], r.checkBase64(keyAccount, v[keyAccount])
	default:
		z.SAS, err = strings.TrimPrefix(v[keySAS], "?"), r.checkSAS(v[keySAS])
	}
	if err == nil && v[keyAuthority] != "" {
		z.Authority, err = r.parseAuthority(v[keyAuthority])
	}
	return z, err
}

// azureNeeds lists the keys of a Secret for Azure that have no effect without others:
// without all keys in all, and one of those in any.
var azureNeeds = []struct {
	key      string
	all, any []string
}{
	{keyClientSecret, []string{keyTenant, keyClient}, nil},
	{keyClientCert, []string{keyTenant, keyClient}, nil},
	{keyTenant, []string{keyClient}, []string{keyClientSecret, keyClientCert}},
	{keyClientPass, []string{keyClientCert}, nil},
	{keyClientChain, []string{keyClientCert}, nil},
}

// checkAzureKeys checks that the Secret has one of the forms.
func (r reader) checkAzureKeys(v map[string]string) error {
	absent := func(key string) bool { return v[key] == "" }
	for _, n := range azureNeeds {
		if absent(n.key) {
			continue
		}
		if i := slices.IndexFunc(n.all, absent); i >= 0 {
			return r.Problem(n.all[i], "is missing: %s needs it", n.key)
		}
		if n.any != nil && !slices.ContainsFunc(n.any, func(key string) bool { return !absent(key) }) {
			return r.Problem(n.any[0], "is missing: %s needs it, or %s; without %s this is a managed identity", n.key, n.any[1], n.key)
		}
	}
	if absent(keyClient) && absent(keyAccount) && absent(keySAS) {
		return r.Problem(keyAccount, "is missing: provider azure needs it, or %s, or %s", keySAS, keyClient)
	}
	return nil
}

func (r reader) checkBase64(key, text string) error {
	if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		return r.Problem(key, "is not base64: copy the key of the storage account as it is")
	}
	return nil
}

// checkSAS checks that text is the query of a shared access signature. It does not return
// the error of the parser, which would contain the text.
func (r reader) checkSAS(text string) error {
	q, err := url.ParseQuery(strings.TrimPrefix(text, "?"))
	switch {
	case err != nil:
		return r.Problem(keySAS, "is not the query of a URL: copy the whole token as it is, without the URL before it")
	case q.Get("sig") == "":
		return r.Problem(keySAS, "has no sig: copy the whole token, not its signature alone")
	}
	return nil
}

func (r reader) parseAuthority(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, r.Problem(keyAuthority, "is not the URL of an authority: it should read https://HOST/")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/") + "/"}, nil
}

// BadCertificate returns an error that the certificate of an application cannot be used.
// reason must contain no value of the Secret.
func (z Azure) BadCertificate(reason string) error {
	return &SecretError{Secret: z.name, Key: keyClientCert, Problem: "cannot be used: " + reason}
}
