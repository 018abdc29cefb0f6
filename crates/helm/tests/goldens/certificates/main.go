// Command certificates prints certificates as sprig's functions make them, with fixed keys, times and serial numbers, for
// ../../vectors/certificates.jsonl: one JSON object a line, with what a certificate was made of and the certificate.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"
)

type vector struct {
	Authority bool     `json:"authority"`
	Name      string   `json:"name"`
	IPs       []string `json:"ips"`
	DNS       []string `json:"dns"`
	Days      int      `json:"days"`
	Now       string   `json:"now"`
	Serial    string   `json:"serial"`
	Key       string   `json:"key"`
	// Index of the vector that signs this one; its own for self-signed ones.
	Signer int    `json:"signer"`
	Cert   string `json:"cert"`
}

func main() {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	check(err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	now, serial := "2024-05-06T07:08:09Z", "00ff102030405060708090a0b0c0d0e0"
	vectors := []vector{
		{Authority: true, Name: "my-ca", Days: 365, Now: now, Serial: serial, Signer: 0, Key: encode(rsaKey)},
		{Name: "svc.ns.svc", DNS: []string{"a", "b.c"}, IPs: []string{"10.0.0.1", "::1", "::ffff:1.2.3.4"}, Days: 30, Now: now, Serial: "80" + serial[2:], Signer: 0, Key: encode(edKey)},
		{Name: "svc", Days: 10000, Now: now, Serial: serial, Signer: 0, Key: encode(ecKey)},
		{Authority: true, Name: "ünï*", Days: 36500, Now: now, Serial: "00000000000000000000000000000001", Signer: 3, Key: encode(edKey)},
		{Name: "", DNS: []string{"x.y"}, Days: -1, Now: "2049-12-31T23:59:59Z", Serial: serial, Signer: 3, Key: encode(rsaKey)},
		{Name: "self", IPs: []string{"127.0.0.1"}, Days: 0, Now: "2050-01-01T00:00:00Z", Serial: serial, Signer: 5, Key: encode(edKey)},
		{Authority: true, Name: "a & b", Days: 1, Now: now, Serial: serial, Signer: 6, Key: encode(ecKey)},
		{Name: "my-ca", DNS: []string{"same.name"}, Days: 1, Now: now, Serial: serial, Signer: 0, Key: encode(edKey)},
	}
	out := json.NewEncoder(os.Stdout)
	for i := range vectors {
		v := &vectors[i]
		template := v.template()
		parent, signer := template, decode(v.Key)
		if v.Signer != i {
			block, _ := pem.Decode([]byte(vectors[v.Signer].Cert))
			parent, err = x509.ParseCertificate(block.Bytes)
			check(err)
			signer = decode(vectors[v.Signer].Key)
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, decode(v.Key).Public(), signer)
		check(err)
		v.Cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		check(out.Encode(v))
	}
}

func (v *vector) template() *x509.Certificate {
	now, err := time.Parse(time.RFC3339, v.Now)
	check(err)
	serial, err := hex.DecodeString(v.Serial)
	check(err)
	ips := []net.IP{}
	for _, ip := range v.IPs {
		ips = append(ips, net.ParseIP(ip))
	}
	template := &x509.Certificate{
		SerialNumber:          new(big.Int).SetBytes(serial),
		Subject:               pkix.Name{CommonName: v.Name},
		IPAddresses:           ips,
		DNSNames:              v.DNS,
		NotBefore:             now,
		NotAfter:              now.Add(time.Hour * 24 * time.Duration(v.Days)),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if v.Authority {
		template.KeyUsage |= x509.KeyUsageCertSign
		template.IsCA = true
	}
	return template
}

func encode(key crypto.Signer) string {
	block := &pem.Block{}
	var err error
	switch key := key.(type) {
	case *rsa.PrivateKey:
		block.Type, block.Bytes = "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)
	case *ecdsa.PrivateKey:
		block.Type = "EC PRIVATE KEY"
		block.Bytes, err = x509.MarshalECPrivateKey(key)
	default:
		block.Type = "PRIVATE KEY"
		block.Bytes, err = x509.MarshalPKCS8PrivateKey(key)
	}
	check(err)
	return string(pem.EncodeToMemory(block))
}

func decode(text string) crypto.Signer {
	block, _ := pem.Decode([]byte(text))
	var key any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	check(err)
	return key.(crypto.Signer)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
