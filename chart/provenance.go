package chart

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/signature"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// provenanceMode is the verification that a PkgRepository over HTTP asks for.
const provenanceMode = "provenance"

// provenanceField names its Secret.
const provenanceField = "spec.verify.secretRef of the PkgRepository"

// maxProvenance is how many bytes a provenance file may have.
const maxProvenance = 1 << 20

// A provenance is what somebody signed of a chart: its Chart.yaml, and the
// digests of files.
type provenance struct {
	name, version string
	files         map[string]string // sha256:HEX by name
}

// separator stands between the two documents of a provenance file.
var separator = []byte("\n...\n")

// parseProvenance reads what is signed in a provenance file.
func parseProvenance(text []byte) (p provenance, err error) {
	about, sums, ok := bytes.Cut(text, separator)
	if !ok || bytes.Contains(sums, separator) {
		return p, errors.New("want Chart.yaml, a line of three dots, and the digests of files")
	}
	var chart, list map[string]any
	if err := yaml.UnmarshalStrict(about, &chart); err != nil {
		return p, fmt.Errorf("its Chart.yaml: %.300q", err.Error())
	}
	if err := yaml.UnmarshalStrict(sums, &list); err != nil {
		return p, fmt.Errorf("its digests: %.300q", err.Error())
	}
	p.name, _ = chart["name"].(string)
	p.version, _ = chart["version"].(string)
	files, _ := list["files"].(map[string]any)
	p.files = make(map[string]string, len(files))
	for name, digest := range files {
		p.files[name], _ = digest.(string)
	}
	return p, nil
}

// check compares p with a chart that was fetched: its name, its version, and
// the digest of its archive under the name that the package manager gives it.
func (p provenance) check(got *fetched) error {
	name, version := got.Metadata.Name, got.Metadata.Version
	if p.name != name || p.version != version {
		return fmt.Errorf("it is about chart %.200q in version %.200q, not %q in version %q", p.name, p.version, name, version)
	}
	file := name + "-" + version + ".tgz"
	digest, ok := p.files[file]
	switch {
	case !ok:
		return fmt.Errorf("it has no digest of %s", file)
	case !strings.HasPrefix(digest, "sha256:"):
		return fmt.Errorf("digest %.100q of %s: want sha256:HEX", digest, file)
	case digest != got.Digest:
		return fmt.Errorf("%s: %w", file, &artifact.DigestError{Want: digest, Got: got.Digest})
	}
	return nil
}

// misplaced is a verification that a repository over HTTP cannot do.
var misplaced = transport.Unverified(invalid(errors.New("spec.verify goes with a PkgRepository of type oci: remove it, or name a keyring in spec.verify of the PkgRepository")))

func (u *site) trusts(ctx context.Context, trust *source.OCIRepositoryVerification) (string, error) {
	if trust != nil {
		return "", misplaced
	}
	if u.repo.Spec.Verify == nil {
		return "", nil
	}
	secret, _, err := u.keys(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	transport.Note(sum, provenanceMode)
	secret.Note(sum)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// keys returns the Secret of spec.verify, each value of which is a keyring, and the keys in it.
func (u *site) keys(ctx context.Context) (secret transport.Secret, keys *signature.Keys, err error) {
	err = source.Within(ctx, timeout(u.repo), "read the Secret of spec.verify", func(ctx context.Context) (err error) {
		secret, err = u.supply.vault.Read(ctx, &u.repo.Spec.Verify.SecretRef, provenanceField)
		return err
	})
	if err == nil {
		if keys, err = signature.ParseOpenPGP(secret.Data); err != nil {
			err = fmt.Errorf("%s: secret %s: %w", provenanceField, secret.Name, err)
		}
	}
	if err != nil {
		return transport.Secret{}, nil, transport.Unverified(err)
	}
	return secret, keys, nil
}

// verify implements upstream: by the provenance file that lies beside the chart.
// What it fetches for that is kept for fetch.
func (u *site) verify(ctx context.Context, o offer, trust *source.OCIRepositoryVerification) (v source.Verification, err error) {
	if trust != nil {
		return v, misplaced
	}
	if u.repo.Spec.Verify == nil {
		return v, nil
	}
	l, ok := o.from.(*listed)
	if !ok {
		return v, stepError(source.StepVerify, verifyFailed, foreign(o))
	}
	got, signer, err := u.verified(ctx, o, l)
	if err != nil {
		return v, err
	}
	u.keep(l, got)
	return source.Verification{Mode: provenanceMode, Signer: signer,
		Message: fmt.Sprintf("verified provenance of chart %s in version %s with key '%s'", o.name, o.version, signer)}, nil
}

// verified fetches the chart of o and its provenance file, and returns who signed that.
func (u *site) verified(ctx context.Context, o offer, l *listed) (got *fetched, signer string, err error) {
	_, keys, err := u.keys(ctx)
	if err != nil {
		return nil, "", err
	}
	if got, err = u.obtain(ctx, o, l, false); err != nil {
		return nil, "", err
	}
	if signer, err = u.vouched(ctx, got, keys); err != nil {
		got.Close()
		return nil, "", stepError(source.StepVerify, verifyFailed, fmt.Errorf("chart %s %s: %w", o.name, o.version, err))
	}
	return got, signer, nil
}

// vouched returns who signed the provenance file of got.
func (u *site) vouched(ctx context.Context, got *fetched, keys *signature.Keys) (signer string, err error) {
	file, where, err := u.provenance(ctx, got)
	if err != nil {
		return "", err
	}
	refused := func(err error) (string, error) {
		return "", fmt.Errorf("%w: provenance file %s: %w", source.ErrVerification, where, err)
	}
	text, signer, err := keys.VerifyText(file, time.Now())
	if err != nil {
		return refused(err)
	}
	p, err := parseProvenance(text)
	if err == nil {
		err = p.check(got)
	}
	if err != nil {
		return refused(err)
	}
	return signer, nil
}

// provenance returns the provenance file of got, which came with it or lies
// beside it, and where it is from.
func (u *site) provenance(ctx context.Context, got *fetched) (file []byte, where string, err error) {
	if got.from.Scheme != "oci" {
		return u.beside(ctx, got.from)
	}
	if got.prov == nil {
		err = fmt.Errorf("%w: %s has no provenance file", source.ErrVerification, redact.URL(got.from))
	}
	return got.prov, redact.URL(got.from), err
}

// beside returns the provenance file of the chart at a URL.
func (u *site) beside(ctx context.Context, at *url.URL) (file []byte, where string, err error) {
	prov := *at
	prov.Path += ".prov"
	if prov.RawPath != "" {
		prov.RawPath += ".prov"
	}
	err = u.open(ctx, &prov, "download provenance file", func(size int64, content io.Reader) (err error) {
		if file, err = readProvenance(content); err != nil {
			return fmt.Errorf("%s: %w", redact.URL(&prov), err)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: there is no provenance file: %w", source.ErrVerification, err)
	}
	return file, redact.URL(&prov), err
}

// readProvenance reads a provenance file.
func readProvenance(content io.Reader) ([]byte, error) {
	file, err := io.ReadAll(io.LimitReader(content, maxProvenance+1))
	if err == nil && len(file) > maxProvenance {
		err = &artifact.LimitError{What: "bytes", Limit: maxProvenance}
	}
	return file, err
}
