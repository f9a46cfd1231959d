package cosign

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"slices"

	"github.com/digitorus/pkcs7"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	prototrustroot "github.com/sigstore/protobuf-specs/gen/pb-go/trustroot/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"google.golang.org/protobuf/encoding/protojson"
)

// Whoever may write to a repository chooses the keys in entries of Rekor, in
// certificates and in timestamps. The libraries compute with some of them
// before they ask whether anybody trusts them, and an RSA key of 64 KiB takes
// them seconds in which no context ends. So keys are measured first. So are
// timestamps: pkcs7 accepts BER, descends without a limit, and takes a time
// that grows with the square of the length.

const (
	maxBits  = 8192     // of an RSA key
	maxEntry = 64 << 10 // bytes of the body of an entry
	maxStamp = 64 << 10 // bytes of a timestamp
	maxDepth = 32       // of the ASN.1 of a timestamp
)

// light returns an error when an RSA key takes long to compute with.
func light(key crypto.PublicKey) error {
	if k, is := key.(*rsa.PublicKey); is && k.N.BitLen() > maxBits {
		return fmt.Errorf("it holds an RSA key of %d bits, more than the limit of %d", k.N.BitLen(), maxBits)
	}
	return nil
}

// lightBundle measures the keys in a bundle.
func lightBundle(b *protobundle.Bundle) error {
	material := b.GetVerificationMaterial()
	for _, e := range material.GetTlogEntries() {
		if err := lightEntry(e.GetCanonicalizedBody()); err != nil {
			return fmt.Errorf("its entry in a log: %w", err)
		}
	}
	for _, s := range material.GetTimestampVerificationData().GetRfc3161Timestamps() {
		if err := lightStamp(s.GetSignedTimestamp()); err != nil {
			return fmt.Errorf("its timestamp: %w", err)
		}
	}
	return nil
}

// lightEntry measures the keys in the body of an entry of Rekor, wherever they are in it.
func lightEntry(body []byte) error {
	if len(body) > maxEntry {
		return fmt.Errorf("it has %d bytes, more than the limit of %d", len(body), maxEntry)
	}
	for in := json.NewDecoder(bytes.NewReader(body)); ; {
		token, err := in.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		text, _ := token.(string)
		if data, err := base64.StdEncoding.DecodeString(text); err == nil {
			if err := lightPEM(data); err != nil {
				return err
			}
		}
	}
}

// lightPEM measures the keys in text that may be PEM.
func lightPEM(text []byte) error {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if err := lightDER(block.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// lightDER measures what may be a certificate or a key.
func lightDER(der []byte) error {
	if c, err := x509.ParseCertificate(der); err == nil {
		return light(c.PublicKey)
	}
	for _, read := range parsers {
		if key, err := read(der); err == nil {
			return light(key)
		}
	}
	return nil
}

// lightStamp measures the keys in the answer of a timestamp authority (RFC 3161, section 2.4.2).
func lightStamp(der []byte) error {
	if len(der) > maxStamp {
		return fmt.Errorf("it has %d bytes, more than the limit of %d", len(der), maxStamp)
	}
	if err := shallow(der, maxDepth); err != nil {
		return err
	}
	var answer struct {
		Status asn1.RawValue
		Token  asn1.RawValue `asn1:"optional"`
	}
	if _, err := asn1.Unmarshal(der, &answer); err != nil {
		return err
	}
	token, err := pkcs7.Parse(answer.Token.FullBytes)
	if err != nil {
		return err
	}
	for _, c := range token.Certificates {
		if err := light(c.PublicKey); err != nil {
			return err
		}
	}
	return nil
}

// shallow returns an error unless der is DER, nested no deeper than depth.
func shallow(der []byte, depth int) error {
	for len(der) > 0 {
		var v asn1.RawValue
		rest, err := asn1.Unmarshal(der, &v)
		if err == nil && v.IsCompound {
			if depth == 0 {
				return fmt.Errorf("its ASN.1 is nested deeper than the limit of %d", maxDepth)
			}
			err = shallow(v.Bytes, depth-1)
		}
		if err != nil {
			return err
		}
		der = rest
	}
	return nil
}

// readRoot reads a trusted root and measures its keys: anybody with access to the
// Secrets of one namespace can write it.
func readRoot(data []byte) (*root.TrustedRoot, error) {
	material := new(prototrustroot.TrustedRoot)
	if err := protojson.Unmarshal(data, material); err != nil {
		return nil, err
	}
	var keys [][]byte
	for _, l := range slices.Concat(material.GetTlogs(), material.GetCtlogs()) {
		keys = append(keys, l.GetPublicKey().GetRawBytes())
	}
	for _, a := range slices.Concat(material.GetCertificateAuthorities(), material.GetTimestampAuthorities()) {
		for _, c := range a.GetCertChain().GetCertificates() {
			keys = append(keys, c.GetRawBytes())
		}
	}
	for _, der := range keys {
		if err := lightDER(der); err != nil {
			return nil, err
		}
	}
	return root.NewTrustedRootFromProtobuf(material)
}
