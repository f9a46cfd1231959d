package chart

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A registry has the charts of a PkgRepository of type oci, each in an OCI
// repository of its own.
type registry struct {
	*opener
	repo *source.PkgRepository
	url  string // normalised

	mu        sync.Mutex
	connected map[string]*oci.Repository // by the name of the chart
}

// openRegistry returns the upstream for a registry. It sends no request.
func (o *opener) openRegistry(repo *source.PkgRepository) (upstream, error) {
	url, err := normalise(repo.Spec.URL)
	if err == nil && !strings.HasPrefix(url, "oci://") {
		err = errors.New("a repository of type oci is at oci://HOST/PATH")
	}
	if err != nil {
		return nil, badURL(err)
	}
	return &registry{opener: o, repo: repo, url: url, connected: map[string]*oci.Repository{}}, nil
}

func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, from := range r.connected {
		from.Close()
	}
	clear(r.connected)
}

// ociRepository returns the OCI repository that holds the chart. The first call for a chart reads
// Secrets and logs in.
func (r *registry) ociRepository(ctx context.Context, name string) (*oci.Repository, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from := r.connected[name]; from != nil {
		return from, nil
	}
	env := r.env
	if dir, ok := env.Local[r.repo.Spec.URL]; ok { // with one image layout for each chart
		env.Local = map[string]string{r.url + "/" + name: filepath.Join(dir, filepath.FromSlash(name))}
	}
	from, err := r.connect(ctx, r.repo, r.url+"/"+name, env, nil)
	if err != nil {
		return nil, err
	}
	r.connected[name] = from
	return from, nil
}

// connect logs in to the OCI repository at url with the credentials of repo.
func (o *opener) connect(ctx context.Context, repo *source.PkgRepository, url string, env source.Env, by *oci.NetworkGuard) (from *oci.Repository, err error) {
	spec := &repo.Spec
	a := oci.Access{URL: url, Provider: spec.Provider, Secret: spec.SecretRef, UserSecret: true, Cert: spec.CertSecretRef, Insecure: spec.Insecure, From: by}
	err = source.Within(ctx, timeout(repo), "log in", func(ctx context.Context) (err error) {
		from, err = oci.Connect(ctx, a, env, o.secretReader)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) { // the issuer of credentials timed out: login contacts no other server
		err = &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
	}
	return from, err
}

func (r *registry) find(ctx context.Context, name, want string) (*selectedVersion, error) {
	failed := func(err error) (*selectedVersion, error) {
		return nil, stepError(source.StepResolve, pullFailed, fmt.Errorf("chart %s: %w", name, err))
	}
	from, err := r.ociRepository(ctx, name)
	if err != nil {
		return failed(err)
	}
	s := &selectedVersion{name: name, version: want}
	if _, err := semver.StrictNewVersion(want); err != nil {
		err := source.Within(ctx, timeout(r.repo), "list tags", func(ctx context.Context) error {
			entry, err := index.Select(versions(from.Tags(ctx)), want)
			s.version = entry.Version
			return err
		})
		switch {
		case errors.Is(err, index.ErrRange):
			return nil, badChart(fmt.Errorf("chart %s: %w", name, err))
		case errors.Is(err, fs.ErrNotExist) && is[*oci.StatusError](err) && path.Base(r.url) == path.Base(name):
			return failed(fmt.Errorf("%w: spec.url must not have the name of the chart at its end", err))
		case errors.Is(err, fs.ErrNotExist) && !is[*oci.StatusError](err):
			return failed(fmt.Errorf("tags of %s: %w", from.Name(), err))
		case err != nil:
			return failed(err)
		}
	}
	tag := strings.ReplaceAll(s.version, "+", "_")
	err = source.Within(ctx, timeout(r.repo), "look up tag "+tag, func(ctx context.Context) (err error) {
		s.subject, err = from.Head(ctx, tag)
		return err
	})
	if err != nil {
		return failed(err)
	}
	s.identity = s.subject.Digest.String()
	return s, nil
}

// versions yields the tags that are versions, with + in place of _.
func versions(tags iter.Seq2[string, error]) iter.Seq2[index.Entry, error] {
	return func(yield func(index.Entry, error) bool) {
		for tag, err := range tags {
			version := strings.ReplaceAll(tag, "_", "+")
			if _, none := semver.StrictNewVersion(trimV(version)); none != nil && err == nil {
				continue
			}
			if !yield(index.Entry{Version: version}, err) {
				return
			}
		}
	}
}

func (r *registry) trustFingerprint(ctx context.Context, trust *source.OCIRepositoryVerification) (print string, err error) {
	if trust == nil {
		return "", nil
	}
	err = source.Within(ctx, timeout(r.repo), "read the Secrets of spec.verify", func(ctx context.Context) (err error) {
		_, print, err = r.signatures(trust).Trust(ctx)
		return err
	})
	if err != nil {
		return "", transport.VerificationError(err)
	}
	return print, nil
}

// signatures returns the check that spec.verify asks for.
func (r *registry) signatures(trust *source.OCIRepositoryVerification) oci.Check {
	return oci.Check{Spec: trust, Technologies: r.technologies, SecretReader: r.secretReader}
}

// verify implements upstream. It verifies the selected digest, and so everything that the
// digest covers.
func (r *registry) verify(ctx context.Context, s *selectedVersion, trust *source.OCIRepositoryVerification) (v source.Verification, err error) {
	if trust == nil {
		return v, nil
	}
	from, err := r.ociRepository(ctx, s.name)
	if err == nil {
		err = source.Within(ctx, timeout(r.repo), "verify", func(ctx context.Context) error {
			check := r.signatures(trust)
			t, _, err := check.Trust(ctx)
			if err == nil {
				v, err = check.Verify(ctx, from, s.subject, t)
			}
			return err
		})
	}
	if err != nil {
		return source.Verification{}, stepError(source.StepVerify, verifyFailed, fmt.Errorf("chart %s %s: %w", s.name, s.version, err))
	}
	if v != (source.Verification{}) {
		v.Message = cmp.Or(v.Message, fmt.Sprintf("verified signature of chart %s in version %s, %s", s.name, s.version, s.subject.Digest))
	}
	return v, nil
}

func (r *registry) fetch(ctx context.Context, s *selectedVersion) (*bundle.Chart, error) {
	from, err := r.ociRepository(ctx, s.name)
	var got downloadedChart
	if err == nil {
		got, err = r.pull(ctx, s, from, r.repo, s.subject, false)
	}
	s.pin = source.ChartPin{Version: s.version, Digest: s.subject.Digest.String(),
		URL: r.url + "/" + s.name + ":" + strings.ReplaceAll(s.version, "+", "_")}
	if err != nil {
		return nil, stepError(source.StepFetch, pullFailed, fmt.Errorf("chart %s %s: %w", s.name, s.version, err))
	}
	return got.Chart, nil
}

// The media types of charts in registries. The last one is that of charts that were pushed
// while this was an experiment.
const (
	configType  = "application/vnd.cncf.helm.config.v1+json"
	contentType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	provType    = "application/vnd.cncf.helm.chart.provenance.v1.prov"
	legacyType  = "application/tar+gzip"
)

// parseManifest returns the layer of the chart and that of its provenance file, nil if
// there is none.
func parseManifest(d ocispec.Descriptor, text []byte) (chart, prov *ocispec.Descriptor, err error) {
	var in ocispec.Manifest
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if in.Config.MediaType != configType {
		mediaType := cmp.Or(in.ArtifactType, in.Config.MediaType, d.MediaType)
		return nil, nil, fmt.Errorf("it is no chart but of type %.100q: want a config of type %s, as helm push makes it", mediaType, configType)
	}
	for _, l := range in.Layers {
		switch l.MediaType {
		case contentType, legacyType:
			if chart == nil {
				chart = &l
			}
		case provType:
			prov = &l
		}
	}
	if chart == nil {
		return nil, nil, fmt.Errorf("no layer has the media type %s", contentType)
	}
	return chart, prov, nil
}

// pull returns the chart whose manifest is subject, with its provenance file if withProv is
// set. All content is checked against the digests in the manifest. The credentials, and the
// timeout of each request, are those of repo.
func (o *opener) pull(ctx context.Context, s *selectedVersion, from *oci.Repository, repo *source.PkgRepository, subject ocispec.Descriptor, withProv bool) (got downloadedChart, err error) {
	var chart, prov *ocispec.Descriptor
	err = source.Within(ctx, timeout(repo), "fetch manifest", func(ctx context.Context) error {
		d, text, err := from.Manifest(ctx, ocispec.Descriptor{Digest: subject.Digest})
		if err != nil {
			return err
		}
		if chart, prov, err = parseManifest(d, text); err != nil {
			err = fmt.Errorf("%s@%s: %w", from.Name(), subject.Digest, err)
		}
		return err
	})
	if err == nil && withProv && prov != nil {
		err = source.Within(ctx, timeout(repo), "pull provenance file", func(ctx context.Context) error {
			return readBlob(ctx, from, *prov, func(r io.Reader) (err error) {
				got.prov, err = readProvenance(r)
				return err
			})
		})
	}
	if err != nil {
		return got, err
	}
	access, err := o.cacheScope(ctx, repo, from)
	if err != nil {
		return got, err
	}
	err = source.Within(ctx, timeout(repo), "pull chart", func(ctx context.Context) error {
		got.Chart, err = o.fromCache(ctx, s, chart.Digest.String(), access, func() (c *bundle.Chart, err error) {
			err = readBlob(ctx, from, *chart, func(r io.Reader) error {
				if c, err = s.read(r, chart.Size, o.env.Limits); err != nil {
					return err
				}
				if _, err = io.Copy(io.Discard, r); err == nil { // the digest is checked at the end
					err = s.check(c)
				}
				if err != nil {
					c.Close()
				}
				return err
			})
			return c, err
		})
		return err
	})
	return got, err
}

// readBlob calls use with the content of a layer.
func readBlob(ctx context.Context, from *oci.Repository, layer ocispec.Descriptor, use func(io.Reader) error) error {
	blob, err := from.Blob(ctx, layer)
	if err != nil {
		return err
	}
	defer blob.Close()
	if err := use(blob); err != nil {
		return fmt.Errorf("layer %s of %s: %w", layer.Digest, from.Name(), err)
	}
	return nil
}

// cacheScope returns the part of a cache key that limits the reuse of content of from to
// objects that use the same repository with the same credentials.
func (o *opener) cacheScope(ctx context.Context, repo *source.PkgRepository, from *oci.Repository) (string, error) {
	secret, cert, err := readSecrets(ctx, repo, o.secretReader)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	transport.HashInto(h, from.Name(), repo.Spec.Provider, fmt.Sprint(repo.Spec.Insecure))
	secret.HashInto(h)
	cert.HashInto(h)
	return string(h.Sum(nil)), nil
}
