package chart

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// pull returns the chart at an oci URL that the index has. Credentials are
// those of the PkgRepository of the namespace that has charts there, if there is
// one: what the index names is else asked for as by anybody.
func (u *site) pull(ctx context.Context, o offer, l *listed, at *url.URL) (*fetched, error) {
	if at.User != nil || at.RawQuery != "" {
		return nil, fmt.Errorf("URL %s of a chart: want oci://HOST/PATH:TAG, without user information and query", redact.URL(at))
	}
	where, reference := parseImage(at.String(), o.version)
	if err := oci.CheckURL(where); err != nil {
		return nil, fmt.Errorf("URL %s of a chart: %w", redact.URL(at), err)
	}
	repo, err := u.supply.repository(ctx, func(have string) int {
		if !strings.HasPrefix(have, "oci://") || !strings.HasPrefix(where, have+"/") {
			return 0
		}
		return len(have)
	})
	if err != nil {
		return nil, err
	}
	var by *oci.Fence
	if repo == nil {
		repo = anonymous(where)
		repo.Spec.Timeout = u.repo.Spec.Timeout
		by = u.web.names()
	}
	from, err := u.supply.connect(ctx, repo, where, u.supply.env, by)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	var subject ocispec.Descriptor
	err = source.Within(ctx, timeout(repo), "look up "+reference, func(ctx context.Context) (err error) {
		subject, err = from.Head(ctx, reference)
		return err
	})
	if err != nil {
		return nil, err
	}
	got, err := u.supply.pull(ctx, pull{offer: o, from: from, subject: subject, repo: repo, prov: u.repo.Spec.Verify != nil})
	if err != nil {
		return nil, err
	}
	if l.digest != "" && l.digest != got.Digest && l.digest != subject.Digest.String() {
		got.Close()
		return nil, fmt.Errorf("%s: it is not what the index promises: %w", where, &artifact.DigestError{Want: l.digest, Got: got.Digest})
	}
	got.from = at
	return got, nil
}
