// tests/core/source_devices_test.cpp -- Which devices may lend configs to which, and in what order.
// SPDX-License-Identifier: Apache-2.0
#include "core/source_devices.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/like_devices.h"

namespace vitune {
namespace {

using testing_support::h100_device;
using testing_support::h200_device;
using testing_support::h20_device;

DeviceInfo of_capability(int major, int minor) {
  DeviceInfo device = h200_device("cc");
  device.cc_major = major;
  device.cc_minor = minor;
  return device;
}

DeviceInfo of_sms(int count) {
  DeviceInfo device = h200_device("a part of an H200");
  device.sm_count = count;
  return device;
}

std::vector<std::string> names(const std::vector<DeviceInfo>& devices) {
  std::vector<std::string> names;
  for (const DeviceInfo& device : devices) names.push_back(device.name);
  return names;
}

struct Lending {
  std::string name;
  DeviceInfo source, device;
  bool may;
};

class SourceDevices : public ::testing::TestWithParam<Lending> {};

TEST_P(SourceDevices, ServeByTheRuleInBothDirections) {
  const Lending& lending = GetParam();
  EXPECT_EQ(may_serve_from(lending.source, lending.device), lending.may);
  EXPECT_EQ(may_serve_from(lending.device, lending.source), lending.may);
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, SourceDevices,
    ::testing::Values(Lending{"H200AndH100", h200_device(), h100_device(), true},
                      Lending{"H200AndH20", h200_device(), h20_device(), true},
                      Lending{"Itself", h200_device(), h200_device("by another name"), false},
                      Lending{"HalfOfTheSms", h200_device(), of_sms(66), true},
                      Lending{"LessThanHalf", h200_device(), of_sms(65), false},
                      Lending{"NoSms", h200_device(), of_sms(0), false},
                      Lending{"Sm80", h200_device(), of_capability(8, 0), false},
                      Lending{"Sm86", h200_device(), of_capability(8, 6), false},
                      Lending{"Sm89", h200_device(), of_capability(8, 9), false},
                      Lending{"Sm100", h200_device(), of_capability(10, 0), false},
                      Lending{"Sm120", h200_device(), of_capability(12, 0), false},
                      Lending{"Sm80AndSm86", of_capability(8, 0), of_capability(8, 6), false}),
    [](const auto& param) { return param.param.name; });

TEST(SourceDeviceOrder, TheMostAlikeComesFirstWhateverTheOrderOfTheList) {
  DeviceInfo other = h20_device("H20 with the L2 of an H100");
  other.l2_bytes = h100_device().l2_bytes;
  const DeviceInfo ampere = of_capability(8, 0), hopper = h200_device();
  for (const auto& list : {std::vector{h100_device(), other, ampere, h200_device()},
                           std::vector{h200_device(), ampere, other, h100_device()}}) {
    EXPECT_THAT(names(serving_sources(list, h20_device())),
                ::testing::ElementsAre(other.name, "NVIDIA H200", "NVIDIA H100"));
    EXPECT_THAT(names(serving_sources(list, hopper)),
                ::testing::ElementsAre("NVIDIA H100", other.name))
        << "not itself";
  }
}

// A search measures what it takes from others: an architecture of the same major version comes
// first.
TEST(SourceDeviceOrder, ASearchAsksOtherArchitecturesToo) {
  DeviceInfo ada = of_capability(8, 9), ampere = of_capability(8, 0);
  ada.name = "Ada", ampere.name = "Ampere";
  EXPECT_THAT(names(search_sources({h200_device(), ampere, ada}, of_capability(8, 6))),
              ::testing::ElementsAre("Ampere", "Ada", "NVIDIA H200"));
  EXPECT_TRUE(search_sources({h200_device()}, h200_device()).empty());
}

TEST(SourceDeviceDistance, IsZeroForEqualFactsAndSymmetric) {
  EXPECT_EQ(device_distance(h200_device(), h200_device()), 0);
  EXPECT_GT(device_distance(h200_device(), h100_device()), 0);
  EXPECT_EQ(device_distance(h200_device(), h20_device()),
            device_distance(h20_device(), h200_device()));
  EXPECT_TRUE(std::isinf(device_distance(h200_device(), of_sms(0))));
}

TEST(SourceDeviceName, IsPrintable) {
  EXPECT_EQ(shown_device(h200_device()), "NVIDIA H200 (sm_90, 132 SMs)");
  EXPECT_EQ(shown_device(h200_device("")), "GPU (sm_90, 132 SMs)");
  EXPECT_EQ(shown_device(h200_device("a\x1b[2Jb")).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace vitune
