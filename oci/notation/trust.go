package notation

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/notaryproject/notation-core-go/revocation"
	"github.com/notaryproject/notation-core-go/revocation/crl"
	"github.com/notaryproject/notation-core-go/revocation/purpose"
	"github.com/notaryproject/notation-core-go/revocation/result"
	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	"github.com/notaryproject/notation-go/verifier/truststore"
	"github.com/opencontainers/go-digest"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci/internal/attempt"
)

// policyKey is the key of the trust policy in a Secret.
const policyKey = "trustpolicy.json"

// A trust has the trust policy and the certificates of a Secret.
type trust struct {
	secret       string // NAMESPACE/NAME
	policy       *trustpolicy.Document
	certificates []*x509.Certificate
}

// readTrust parses a Secret. Errors name the Secret and the key.
func readTrust(s transport.Secret) (*trust, error) {
	data, ok := s.Data[policyKey]
	if !ok {
		return nil, fmt.Errorf("secret %s has no key %s: it is the trust policy of the Notary Project, in JSON", s.Name, policyKey)
	}
	policy, err := parsePolicy(data)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %s: %s", s.Name, policyKey, attempt.Clip(err.Error()))
	}
	t := &trust{secret: s.Name, policy: policy}
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		if !strings.HasSuffix(key, ".crt") && !strings.HasSuffix(key, ".pem") {
			continue
		}
		certs, err := parseCertificates(s.Data[key])
		if err == nil && slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return keyBits(c) > maxKeyBits }) {
			err = fmt.Errorf("holds an RSA key of more than %d bits", maxKeyBits)
		}
		if err != nil {
			return nil, fmt.Errorf("secret %s: %s: %w", s.Name, key, err)
		}
		t.certificates = append(t.certificates, certs...)
	}
	if len(t.certificates) == 0 {
		return nil, fmt.Errorf("secret %s has no certificates: add those of the signers' authorities under keys that end in .crt or .pem", s.Name)
	}
	return t, nil
}

// parsePolicy parses a trust policy document and validates it.
func parsePolicy(data []byte) (*trustpolicy.Document, error) {
	var doc *trustpolicy.Document
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("is not a trust policy: %w", err)
	}
	if doc == nil {
		return nil, fmt.Errorf("is not a trust policy: it is null")
	}
	for i, p := range doc.TrustPolicies {
		if p.SignatureVerification.VerificationLevel == trustpolicy.LevelSkip.Name {
			doc.TrustPolicies[i].TrustStores, doc.TrustPolicies[i].TrustedIdentities = nil, nil // ignored at this level
		}
	}
	return doc, doc.Validate()
}

// parseCertificates parses certificates, PEM or DER.
func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	if !bytes.Contains(data, []byte("-----BEGIN ")) {
		certs, err := x509.ParseCertificates(data)
		switch {
		case err != nil:
			return nil, fmt.Errorf("holds neither PEM nor DER certificates: %s", strings.TrimPrefix(err.Error(), "x509: "))
		case len(certs) == 0:
			return nil, fmt.Errorf("is empty: want certificates, PEM or DER")
		}
		return certs, nil
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a block of type %.40q: want certificates only", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds a certificate that cannot be parsed: %s", strings.TrimPrefix(err.Error(), "x509: "))
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("holds PEM that cannot be parsed")
	}
	return certs, nil
}

// trusts reports whether a certificate of chain is in the Secret.
func (t *trust) trusts(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool {
		return slices.ContainsFunc(t.certificates, c.Equal)
	})
}

// GetCertificates implements [truststore.X509TrustStore]. Every store has all certificates of
// the Secret.
func (t *trust) GetCertificates(context.Context, truststore.Type, string) ([]*x509.Certificate, error) {
	return t.certificates, nil
}

// maxScopes is the maximum number of scopes in an error.
const maxScopes = 10

// A statement is the part of a trust policy that applies to one repository.
type statement struct {
	repository string
	name       string
	level      *trustpolicy.VerificationLevel
}

// statement returns the statement that applies to a repository.
func (t *trust) statement(repository string) (statement, error) {
	p, err := t.policy.GetApplicableTrustPolicy(reference(repository))
	if err != nil {
		return statement{}, fmt.Errorf("%s in secret %s has no statement for %s, only for the registryScopes %s: add it there",
			policyKey, t.secret, repository, t.scopes())
	}
	level, err := p.SignatureVerification.GetVerificationLevel()
	if err != nil {
		return statement{}, fmt.Errorf("%s in secret %s: %w", policyKey, t.secret, err)
	}
	return statement{repository, p.Name, level}, nil
}

// reference returns a reference to look up a repository in the policy. The policy requires a
// digest but ignores its value.
func reference(repository string) string { return repository + "@" + digest.FromString("").String() }

// scopes lists the scopes of all statements.
func (t *trust) scopes() string {
	var all []string
	for _, p := range t.policy.TrustPolicies {
		all = append(all, p.RegistryScopes...)
	}
	text := fmt.Sprintf("%.200q", all[:min(len(all), maxScopes)])
	if left := len(all) - maxScopes; left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	return text
}

// enforces reports whether a failed check refuses a signature.
func (s statement) enforces(check trustpolicy.ValidationType) bool {
	return s.level.Enforcement[check] == trustpolicy.ActionEnforce
}

// unenforced lists the checks that the level does not enforce.
func (s statement) unenforced() string {
	var checks []string
	for _, check := range trustpolicy.ValidationTypes {
		if !s.enforces(check) {
			checks = append(checks, string(check))
		}
	}
	return strings.Join(slices.Compact(checks), ", ")
}

// revocationTimeout is the timeout of one request about revocation.
const revocationTimeout = 5 * time.Second

// A revocationChecker checks whether certificates of one purpose are revoked, and records
// why a status is unknown.
type revocationChecker struct {
	revocation.Validator
	trust *trust // nil: all chains are trusted
	cause string // why the status of the last chain is unknown, "" if it is known
}

// revocationCheckers returns the validators for signers and for timestamps. The library
// checks the revocation of a timestamp's chain only after it has verified that the chain is
// trusted.
func revocationCheckers(t *trust, web *http.Client) (signers, stamps *revocationChecker, err error) {
	client := *web
	client.Timeout = revocationTimeout
	fetcher, err := crl.NewHTTPFetcher(&client) // without a cache
	if err != nil {
		return nil, nil, err
	}
	options := revocation.Options{OCSPHTTPClient: &client, CRLFetcher: fetcher, CertChainPurpose: purpose.CodeSigning}
	signing, err := revocation.NewWithOptions(options)
	if err != nil {
		return nil, nil, err
	}
	options.CertChainPurpose = purpose.Timestamping
	stamping, err := revocation.NewWithOptions(options)
	return &revocationChecker{Validator: signing, trust: t}, &revocationChecker{Validator: stamping}, err
}

// ValidateContext implements [revocation.Validator]. If any certificate is revoked, the
// status is known, even if the status of others is not.
func (q *revocationChecker) ValidateContext(ctx context.Context, o revocation.ValidateContextOptions) ([]*result.CertRevocationResult, error) {
	revocable := slices.ContainsFunc(o.CertChain, func(c *x509.Certificate) bool { return len(c.OCSPServer)+len(c.CRLDistributionPoints) > 0 })
	if q.trust != nil && revocable && !q.trust.trusts(o.CertChain) {
		return nil, errors.New("not asked, because the certificate is not trusted")
	}
	results, err := q.Validator.ValidateContext(ctx, o)
	q.cause = ""
	for _, r := range results {
		if r == nil {
			continue
		}
		if r.Result == result.ResultRevoked {
			q.cause = ""
			break
		}
		for _, s := range r.ServerResults {
			if r.Result == result.ResultUnknown && s != nil && s.Error != nil {
				q.cause = fmt.Sprintf("%s: %v", s.Server, s.Error)
			}
		}
	}
	return results, err
}
