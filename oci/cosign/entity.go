package cosign

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// An entity is a signature in a layer, as sigstore-go wants it. It implements [verify.SignedEntity].
type entity struct {
	verify.BaseSignedEntity
	content *bundle.MessageSignature
	leaf    *x509.Certificate
	issuers []*x509.Certificate
	entries []*tlog.Entry
	stamps  [][]byte
}

// newEntity reads the annotations of a layer.
func newEntity(payload, made []byte, annotations map[string]string) (*entity, error) {
	sum := sha256.Sum256(payload)
	e := &entity{content: bundle.NewMessageSignature(sum[:], "sha256", made)}
	for _, part := range []struct {
		key  string
		read func(*entity, string) error
	}{{certificateKey, (*entity).certificate}, {chainKey, (*entity).chain}, {rekorKey, (*entity).rekor}, {timestampKey, (*entity).timestamp}} {
		if value := annotations[part.key]; value != "" {
			if err := part.read(e, value); err != nil {
				return nil, fmt.Errorf("its annotation %s: %w", part.key, err)
			}
		}
	}
	return e, nil
}

func (e *entity) HasInclusionPromise() bool { return len(e.entries) > 0 }

func (e *entity) SignatureContent() (verify.SignatureContent, error) { return e.content, nil }

func (e *entity) Timestamps() ([][]byte, error) { return e.stamps, nil }

func (e *entity) TlogEntries() ([]*tlog.Entry, error) { return e.entries, nil }

func (e *entity) Version() (string, error) { return "", nil } // as [strict]

func (e *entity) VerificationContent() (verify.VerificationContent, error) {
	if e.leaf == nil {
		return nil, errors.New("it came with no certificate")
	}
	return chained{bundle.NewCertificate(e.leaf), e.issuers}, nil
}

// chained is a certificate that comes with those of its issuers.
type chained struct {
	verify.VerificationContent
	issuers []*x509.Certificate
}

func (c chained) Intermediates() []*x509.Certificate { return c.issuers }

// certificate reads the PEM of the certificate that signed.
func (e *entity) certificate(text string) error {
	all, err := decodePEM(text)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d certificates, want one", len(all))
	}
	if err != nil {
		return err
	}
	e.leaf = all[0]
	return nil
}

// chain reads the PEM of the certificates between the one that signed and the
// root, which may end it. None of them is trusted because it is there.
func (e *entity) chain(text string) error {
	all, err := decodePEM(text)
	for _, c := range all {
		if c.IsCA && !bytes.Equal(c.RawIssuer, c.RawSubject) {
			e.issuers = append(e.issuers, c)
		}
	}
	return err
}

const maxChain = 8

func decodePEM(text string) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all, nil
		}
		if len(all) == maxChain {
			return nil, fmt.Errorf("more than %d certificates", maxChain)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			err = light(c.PublicKey)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
}

// rekor reads the entry of the signature in the log, with the log's promise to keep it.
func (e *entity) rekor(text string) error {
	var b struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return err
	}
	if err := lightEntry(b.Payload.Body); err != nil {
		return err
	}
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := json.Unmarshal(b.Payload.Body, &kind); err != nil {
		return err
	}
	log, err := hex.DecodeString(b.Payload.LogID)
	if err != nil {
		return err
	}
	entry, err := tlog.ParseTransparencyLogEntry(&protorekor.TransparencyLogEntry{
		LogIndex:          b.Payload.LogIndex,
		LogId:             &protocommon.LogId{KeyId: log},
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version},
		IntegratedTime:    b.Payload.IntegratedTime,
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: b.SignedEntryTimestamp},
		CanonicalizedBody: b.Payload.Body,
	})
	if err != nil {
		return err
	}
	e.entries = []*tlog.Entry{entry}
	return nil
}

// timestamp reads the answer of a timestamp authority.
func (e *entity) timestamp(text string) error {
	var t struct{ SignedRFC3161Timestamp []byte }
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	e.stamps = [][]byte{t.SignedRFC3161Timestamp}
	return lightStamp(t.SignedRFC3161Timestamp)
}
