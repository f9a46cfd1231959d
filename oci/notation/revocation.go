package notation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/notaryproject/notation-core-go/revocation"
	"github.com/notaryproject/notation-core-go/revocation/crl"
	"github.com/notaryproject/notation-core-go/revocation/purpose"
	"github.com/notaryproject/notation-core-go/revocation/result"
)

// inquiryTimeout bounds one request about revocation.
const inquiryTimeout = 5 * time.Second

// An inquirer asks whether certificates of one purpose are revoked, and remembers
// why an answer could not be had.
type inquirer struct {
	revocation.Validator
	trust *trust // nil: all chains are trusted
	cause string // why there was no answer the last time, "" when there was one
}

// inquirers returns the validators of signers and of timestamps. A timestamp is
// asked about after its authority turned out to be trusted.
func inquirers(t *trust, web *http.Client) (signers, stamps *inquirer, err error) {
	client := *web
	client.Timeout = inquiryTimeout
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
	return &inquirer{Validator: signing, trust: t}, &inquirer{Validator: stamping}, err
}

// ValidateContext implements [revocation.Validator]. That a certificate is revoked is
// an answer, whatever is not known of others.
func (q *inquirer) ValidateContext(ctx context.Context, o revocation.ValidateContextOptions) ([]*result.CertRevocationResult, error) {
	revocable := slices.ContainsFunc(o.CertChain, func(c *x509.Certificate) bool { return len(c.OCSPServer)+len(c.CRLDistributionPoints) > 0 })
	if q.trust != nil && revocable && !q.trust.trusts(o.CertChain) {
		return nil, errors.New("not asked, for nobody trusts the certificate")
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
