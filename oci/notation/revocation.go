package notation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/notaryproject/notation-core-go/revocation"
	"github.com/notaryproject/notation-core-go/revocation/crl"
	"github.com/notaryproject/notation-core-go/revocation/purpose"
	"github.com/notaryproject/notation-core-go/revocation/result"
)

// inquiryTimeout bounds one request about revocation.
const inquiryTimeout = 5 * time.Second

// An inquiry asks whether certificates are revoked, and remembers why an answer
// could not be had.
type inquiry struct {
	mu   sync.Mutex
	last string
}

// An inquirer asks about certificates of one purpose.
type inquirer struct {
	revocation.Validator
	trust   *trust // nil: all chains are trusted
	inquiry *inquiry
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
	return &inquirer{signing, t, new(inquiry)}, &inquirer{stamping, nil, new(inquiry)}, err
}

// ValidateContext implements [revocation.Validator].
func (q *inquirer) ValidateContext(ctx context.Context, o revocation.ValidateContextOptions) ([]*result.CertRevocationResult, error) {
	if q.trust != nil && revocable(o.CertChain) && !q.trust.trusts(o.CertChain) {
		return nil, errors.New("not asked, for nobody trusts the certificate")
	}
	results, err := q.Validator.ValidateContext(ctx, o)
	q.inquiry.note(results)
	return results, err
}

// revocable reports whether a certificate of chain names an address to ask.
func revocable(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return len(c.OCSPServer)+len(c.CRLDistributionPoints) > 0 })
}

// note remembers why there was no answer. That a certificate is revoked is one,
// whatever is not known of others.
func (i *inquiry) note(results []*result.CertRevocationResult) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last = ""
	for _, r := range results {
		if r != nil && r.Result == result.ResultRevoked {
			i.last = ""
			return
		}
		if r == nil || r.Result != result.ResultUnknown {
			continue
		}
		for _, s := range r.ServerResults {
			if s != nil && s.Error != nil {
				i.last = fmt.Sprintf("%s: %v", s.Server, s.Error)
			}
		}
	}
}

// cause returns why there was no answer the last time, "" when there was one.
func (i *inquiry) cause() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last
}
