"""The version of everything in this repository: CMake, the packages and the client read it here."""

VERSION = "0.1.0"
