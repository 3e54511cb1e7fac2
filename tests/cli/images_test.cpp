// tests/cli/images_test.cpp -- Images for vitune run: files, resizing, preparing.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "cli/images/batch_source.h"
#include "cli/images/image.h"
#include "cli/images/npy.h"
#include "cli/images/preprocess.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/half.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A picture whose numbers depend on row, column and colour.
Image picture(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        image.rgb.push_back(static_cast<std::uint8_t>((x * 7 + y * 13 + c * 101 + x * y) % 256));
      }
    }
  }
  return image;
}

class ImagesTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    const fs::path path = folder_.path() / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string ppm(const Image& image) {
    return "P6\n# a comment\n" + std::to_string(image.width) + " " + std::to_string(image.height) +
           "\n255\n" + std::string(image.rgb.begin(), image.rgb.end());
  }
  static std::string refusal(const fs::path& path) {
    try {
      read_image(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(ImagesTest, APpmFileIsReadAsItWasWritten) {
  const Image wanted = picture(5, 3), found = read_image(write("a.ppm", ppm(wanted)));
  EXPECT_EQ(found.width, 5);
  EXPECT_EQ(found.height, 3);
  EXPECT_EQ(found.rgb, wanted.rgb);
}

TEST_F(ImagesTest, DamagedFilesAreRefusedWithASentence) {
  const std::string whole = ppm(picture(5, 3));
  const std::pair<std::string, const char*> cases[] = {
      {"", "neither a JPEG nor a PPM"},
      {"P6", "neither a JPEG nor a PPM"},
      {"P6\n", "lacks a number"},
      {"P6\n5 3\n", "lacks a number"},
      {"P6\n5 3\n255", "does not end"},
      {"P6\n0 3\n255\n", "0 x 3 pixels are not from 1"},
      {"P6\n40000 3\n255\n", "are not from 1 to 32768"},
      {"P6\n99999999999999999999 3\n255\n", "too large"},
      {"P6\n5 3\n65535\nabc", "largest value is 65535"},
      {whole.substr(0, whole.size() - 1), "cut short"},
      {"\xff\xd8\xff", "JPEG"},
      {"\x89PNG\r\n", "convert it first"},
  };
  for (const auto& [bytes, words] : cases) {
    EXPECT_THAT(refusal(write("damaged", bytes)), HasSubstr(words)) << bytes;
  }
  EXPECT_THAT(refusal(folder_.path() / "absent.jpg"), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("there is no such file"));
}

// The digests are of Pillow 13.0's results.
TEST_F(ImagesTest, ResizingIsPillowsBitForBit) {
  const struct {
    int from_width, from_height, width, height;
    ResizeFilter filter;
    const char* digest;
  } cases[] = {
      {60, 45, 32, 24, ResizeFilter::kBilinear,
       "4ad7f1968e1419119560e9eac3ec8de74f8ba2ffcd55b30c0e7c322fbb656686"},
      {60, 45, 32, 24, ResizeFilter::kBicubic,
       "6b46a1fa55e89e48d08c7d39cd3a276cd39f748586e0a5d5e68c851d5bf694b9"},
      {45, 60, 56, 74, ResizeFilter::kBilinear,
       "8afd780dc46a45b851101ac88e8259b0d97245e083e549d67beac9a6c851e6d1"},
      {45, 60, 56, 74, ResizeFilter::kBicubic,
       "ff8d46fad3e46f22f1c0136275d6b7ef367d0fa76b4b9622016174c1f622ba46"},
      {33, 33, 100, 100, ResizeFilter::kBilinear,
       "d14dd1bcb32694e33e27709dd7462190f0f7c17eece60ae2fd052e5eeaaa3da0"},
      {33, 33, 100, 100, ResizeFilter::kBicubic,
       "b3bf50fd5ba94ec6a3a31c29ecbf92ff819552aef1cf28f367bb4a0ca2457847"},
  };
  for (const auto& c : cases) {
    const Image result = resized(picture(c.from_width, c.from_height), c.width, c.height, c.filter);
    const std::string bytes(result.rgb.begin(), result.rgb.end());
    EXPECT_EQ(sha256(bytes).hex(), c.digest) << c.from_width << " to " << c.width;
  }
}

TEST_F(ImagesTest, ResizingToItsOwnSizeChangesNothing) {
  const Image image = picture(9, 7);
  for (const ResizeFilter filter : {ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
    EXPECT_EQ(resized(image, 9, 7, filter).rgb, image.rgb);
  }
}

TEST_F(ImagesTest, AGreyImageStaysGreyAtAnySize) {
  const Image grey{6, 4, std::vector<std::uint8_t>(6 * 4 * 3, 77)};
  for (const ResizeFilter filter : {ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
    for (const auto& [width, height] : {std::pair(1, 1), {3, 9}, {64, 2}, {7, 5}}) {
      const Image result = resized(grey, width, height, filter);
      EXPECT_EQ(result.rgb, std::vector<std::uint8_t>(result.rgb.size(), 77));
    }
  }
}

TEST_F(ImagesTest, TheCropIsTheMiddleAndBlackOutside) {
  const Image image = picture(6, 4);
  const Image middle = cropped(image, 2, 2);
  EXPECT_THAT(std::vector(middle.rgb.begin(), middle.rgb.begin() + 3),
              ::testing::ElementsAreArray(image.rgb.data() + (1 * 6 + 2) * 3, 3));
  const Image wide = cropped(image, 8, 2);
  EXPECT_EQ(wide.rgb[0], 0);
  EXPECT_EQ(wide.rgb[3], image.rgb[6 * 3]);
}

TEST_F(ImagesTest, ImagesAreNormalisedPlaneByPlane) {
  const Preprocess how = read_preprocess(
      R"({"size": [2, 2], "crop": 1.0, "filter": "bilinear", "mean": [0.5, 0, 0.25], "std": [0.5, 1, 2]})",
      "a file");
  const Image image{2, 2, {255, 0, 51, 0, 0, 0, 255, 255, 255, 0, 51, 0}};
  const std::vector<float> values = preprocessed(image, how);
  EXPECT_THAT(std::vector(values.begin(), values.begin() + 4), ElementsAre(1.f, -1.f, 1.f, -1.f));
  EXPECT_FLOAT_EQ(values[7], 0.2f);
  EXPECT_FLOAT_EQ(values[8], (0.2f - 0.25f) / 2);
}

TEST_F(ImagesTest, APreprocessTextThatIsNoneIsRefused) {
  for (const char* text :
       {"", "[]", "{", R"({"size": [224]})", R"({"size": [0, 5]})",
        R"({"size": [224, 224], "mean": [0, 0, 0]})",
        R"({"size": [9, 9], "crop": 7, "mean": [0, 0, 0], "std": [1, 1, 1]})",
        R"({"size": [9, 9], "filter": "box", "mean": [0, 0, 0], "std": [1, 1, 1]})",
        R"({"size": [9, 9], "mean": [0, 0, 0], "std": [1, 0, 1]})",
        R"({"size": [9, 9], "mean": [0, "a", 0], "std": [1, 1, 1]})"}) {
    EXPECT_THROW(read_preprocess(text, "a file"), Error) << text;
  }
}

TEST_F(ImagesTest, ArraysAreWrittenAndReadBackInPieces) {
  const fs::path path = folder_.path() / "x.npy";
  std::vector<float> values(3 * 4);
  std::iota(values.begin(), values.end(), 0.5f);
  NpyWriter writer(path, {2, 2});
  writer.add({values.begin(), values.begin() + 4});
  writer.add({values.begin() + 4, values.end()});
  writer.finish();
  NpyReader reader(path);
  EXPECT_THAT(reader.shape(), ElementsAre(3, 2, 2));
  EXPECT_EQ(reader.read(2), std::vector<float>(values.begin(), values.begin() + 8));
  EXPECT_EQ(reader.read(1), std::vector<float>(values.begin() + 8, values.end()));
}

TEST_F(ImagesTest, AForeignArrayIsRefused) {
  const auto npy = [](const std::string& header) {
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header;
  };
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
  const std::pair<std::string, const char*> cases[] = {
      {"", "no NPY file"},
      {npy(good), "shorter than its shape"},
      {npy(good).substr(0, 20), "cut short"},
      {npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }"), "not float32"},
      {npy("{'descr': '<f4', 'fortran_order': True, 'shape': (0,), }"), "not float32"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }"), "a single number"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }"),
       "too large"},
  };
  for (const auto& [bytes, words] : cases) {
    try {
      NpyReader reader(write("a.npy", bytes));
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
}

TEST_F(ImagesTest, AFolderLeavesDamagedImagesOutAndANamedOneEndsTheRun) {
  const std::string how =
      R"({"size": [2, 2], "crop": 1.0, "filter": "bilinear", "mean": [0, 0, 0], "std": [1, 1, 1]})";
  write("a.ppm", ppm(picture(4, 4)));
  const fs::path damaged = write("b.ppm", "P6\n");
  write("c.PPM", ppm(picture(3, 4)));
  write("d.txt", "no image");
  const auto source = open_inputs({folder_.path().string()}, {3, 2, 2}, how, "a file");
  EXPECT_EQ(source->count(), 3);
  EXPECT_EQ(source->next(2).names.size(), 1u);
  const InputBatch last = source->next(2);
  EXPECT_THAT(last.names, ElementsAre(HasSubstr("c.PPM")));
  EXPECT_EQ(last.values.size(), 12u);
  EXPECT_TRUE(source->next(2).names.empty());
  EXPECT_THAT(source->skipped(), ElementsAre(HasSubstr("b.ppm")));
  const auto named = open_inputs({damaged.string()}, {3, 2, 2}, how, "a file");
  EXPECT_THROW(named->next(1), Error);
}

TEST_F(ImagesTest, AnImageThatIsFarTooNarrowIsRefusedBeforeItGrows) {
  const Preprocess how = read_preprocess(
      R"({"size": [224, 224], "crop": 0.875, "mean": [0, 0, 0], "std": [1, 1, 1]})", "a file");
  EXPECT_THROW(preprocessed(picture(1, 32'000), how), Error);
  EXPECT_EQ(preprocessed(picture(4, 200), how).size(), 3u * 224 * 224);
}

TEST_F(ImagesTest, EntriesOfAFolderThatCannotBeLookedAtAreLeftOut) {
  const std::string how =
      R"({"size": [2, 2], "crop": 1.0, "filter": "bilinear", "mean": [0, 0, 0], "std": [1, 1, 1]})";
  write("a.ppm", ppm(picture(4, 4)));
  fs::create_symlink(folder_.path() / "x.jpg", folder_.path() / "x.jpg");
  const auto source = open_inputs({folder_.path().string()}, {3, 2, 2}, how, "a file");
  EXPECT_EQ(source->next(5).names.size(), 1u);
  EXPECT_THAT(source->skipped(), ElementsAre(HasSubstr("x.jpg")));
}

TEST(Half, EveryNumberOf16BitsComesBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(widened_bf16(half))) {
      EXPECT_EQ(rounded_bf16(widened_bf16(half)), half);
    }
    if (!std::isnan(widened_fp16(half))) {
      EXPECT_EQ(rounded_fp16(widened_fp16(half)), half);
    }
  }
  EXPECT_TRUE(std::isnan(widened_bf16(rounded_bf16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(widened_fp16(rounded_fp16(std::nanf("")))));
}

TEST(Half, RoundingIsToNearestEven) {
  EXPECT_EQ(rounded_bf16(1.00390625f), 0x3f80);  // half way to the next
  EXPECT_EQ(rounded_bf16(1.01171875f), 0x3f82);
  EXPECT_EQ(rounded_fp16(1.00048828125f), 0x3c00);
  EXPECT_EQ(rounded_fp16(1.00146484375f), 0x3c02);
  EXPECT_EQ(rounded_fp16(65520.f), 0x7c00);
  EXPECT_EQ(rounded_fp16(65519.9f), 0x7bff);
  EXPECT_EQ(rounded_fp16(0x1p-25f), 0);
  EXPECT_EQ(rounded_fp16(0x1.8p-24f), 2);
  EXPECT_EQ(rounded_fp16(-0x1p-24f), 0x8001);
}

}  // namespace
}  // namespace vitune
