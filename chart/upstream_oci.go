package chart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A registry has the charts of a PkgRepository of type oci, each in an OCI
// repository of its own.
type registry struct {
	supply *supply
	repo   *source.PkgRepository
	url    string // normalised

	mu   sync.Mutex
	open map[string]*oci.Repository // by the name of the chart
}

// An image is the artifact that is a chart.
type image struct {
	of      *registry
	subject ocispec.Descriptor
}

// openRegistry returns the charts of a registry. It sends nothing.
func (s *supply) openRegistry(repo *source.PkgRepository) (upstream, error) {
	url, err := normalise(repo.Spec.URL)
	if err == nil && !strings.HasPrefix(url, "oci://") {
		err = errors.New("a repository of type oci is at oci://HOST/PATH")
	}
	if err != nil {
		return nil, urlInvalid(fmt.Errorf("spec.url: %w", err))
	}
	return &registry{supply: s, repo: repo, url: url, open: map[string]*oci.Repository{}}, nil
}

func (r *registry) find(ctx context.Context, name, want string) (offer, error) {
	from, err := r.repository(ctx, name)
	if err != nil {
		return offer{}, stepError(source.StepResolve, pullFailed, err)
	}
	version := want
	if _, err := semver.StrictNewVersion(want); err != nil {
		if version, err = r.choose(ctx, from, name, want); err != nil {
			return offer{}, err
		}
	}
	subject, err := r.lookUp(ctx, from, version)
	if err != nil {
		return offer{}, stepError(source.StepResolve, pullFailed, fmt.Errorf("chart %s: %w", name, err))
	}
	return offer{name: name, version: version, identity: subject.Digest.String(), from: &image{r, subject}}, nil
}

// repository returns the OCI repository that has the chart. It reads Secrets
// and logs in, once.
func (r *registry) repository(ctx context.Context, name string) (*oci.Repository, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from := r.open[name]; from != nil {
		return from, nil
	}
	env := r.supply.env
	if dir, ok := env.Local[r.repo.Spec.URL]; ok { // in which each chart has an image layout
		env.Local = map[string]string{r.url + "/" + name: filepath.Join(dir, filepath.FromSlash(name))}
	}
	from, err := r.supply.connect(ctx, r.repo, r.url+"/"+name, env, nil)
	if err != nil {
		return nil, err
	}
	r.open[name] = from
	return from, nil
}

// connect returns the OCI repository at url with the credentials of repo.
func (s *supply) connect(ctx context.Context, repo *source.PkgRepository, url string, env source.Env, by *oci.Fence) (from *oci.Repository, err error) {
	spec := &repo.Spec
	a := oci.Access{URL: url, Provider: spec.Provider, Secret: spec.SecretRef, UserSecret: true, Cert: spec.CertSecretRef, Insecure: spec.Insecure, From: by}
	err = source.Within(ctx, timeout(repo), "log in", func(ctx context.Context) (err error) {
		from, err = oci.Connect(ctx, a, env, s.vault)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) { // of whoever issues credentials: nothing else is asked
		err = &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
	}
	return from, err
}

// choose returns the version that want selects among the tags.
func (r *registry) choose(ctx context.Context, from *oci.Repository, name, want string) (version string, err error) {
	var broken error
	var entry index.Entry
	err = source.Within(ctx, timeout(r.repo), "list tags", func(ctx context.Context) (err error) {
		entry, err = index.Select(versions(from.Tags(ctx), &broken), want)
		return err
	})
	switch {
	case err == nil:
		return entry.Version, nil
	case errors.Is(broken, fs.ErrNotExist) && path.Base(r.url) == path.Base(name):
		return "", stepError(source.StepResolve, pullFailed, fmt.Errorf("chart %s: %w: spec.url must not have the name of the chart at its end", name, err))
	case broken != nil || ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return "", stepError(source.StepResolve, pullFailed, fmt.Errorf("chart %s: %w", name, err))
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("tags of %s: %w", from.Name(), err)
	}
	return "", unselected(pullFailed, name, err)
}

// versions returns those that are the names of tags, where _ stands for +.
func versions(tags iter.Seq2[string, error], broken *error) iter.Seq2[index.Entry, error] {
	return func(yield func(index.Entry, error) bool) {
		for tag, err := range tags {
			version := strings.ReplaceAll(tag, "_", "+")
			*broken = err
			if err == nil && !isVersion(version) {
				continue
			}
			if !yield(index.Entry{Version: version}, err) {
				return
			}
		}
	}
}

// isVersion reports whether text is a version in full, with or without a leading v.
func isVersion(text string) bool {
	_, err := semver.StrictNewVersion(bare(text))
	return err == nil
}

// lookUp returns the manifest that the tag of a version names.
func (r *registry) lookUp(ctx context.Context, from *oci.Repository, version string) (d ocispec.Descriptor, err error) {
	tag := strings.ReplaceAll(version, "+", "_")
	err = source.Within(ctx, timeout(r.repo), "look up tag "+tag, func(ctx context.Context) (err error) {
		d, err = from.Head(ctx, tag)
		return err
	})
	return d, err
}

func (r *registry) fetch(ctx context.Context, o offer) (*bundle.Archive, error) {
	from, m, err := r.offered(ctx, o)
	if err != nil {
		return nil, stepError(source.StepFetch, pullFailed, err)
	}
	got, err := r.supply.pull(ctx, pull{offer: o, from: from, subject: m.subject, repo: r.repo})
	if err != nil {
		return nil, stepError(source.StepFetch, pullFailed, fmt.Errorf("chart %s %s: %w", o.name, o.version, err))
	}
	return got.Archive, nil
}

// offered returns the repository and the artifact of an offer.
func (r *registry) offered(ctx context.Context, o offer) (*oci.Repository, *image, error) {
	m, ok := o.from.(*image)
	if !ok || m.of.url != r.url {
		return nil, nil, foreign(o)
	}
	from, err := r.repository(ctx, o.name)
	return from, m, err
}

// foreign is an offer of another upstream.
func foreign(o offer) error {
	return fmt.Errorf("chart %s %s was offered by another repository", o.name, o.version)
}

func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, from := range r.open {
		from.Close()
	}
	clear(r.open)
}
